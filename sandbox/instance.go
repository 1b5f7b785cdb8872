package sandbox

import (
	"fmt"
	"slices"
)

// InstanceType is a named set of limits.
type InstanceType struct {
	Name   string `json:"name"`
	Limits Limits `json:"limits"` // zero fields: the defaults
}

// InstanceTypes lists the types that every server has. Disks are in 10^9 bytes,
// memory in 2^20.
func InstanceTypes() []InstanceType {
	const GB, MiB, GiB = 1_000_000_000, 1 << 20, 1 << 30
	return []InstanceType{
		{"lite", Limits{CPUMilli: 63, MemoryBytes: 256 * MiB, DiskBytes: 2 * GB, Files: 32 << 10}}, // 1/16 of a core, rounded up
		{"basic", Limits{CPUMilli: 250, MemoryBytes: 1 * GiB, DiskBytes: 4 * GB, Files: 64 << 10}},
		{"standard-1", Limits{CPUMilli: 500, MemoryBytes: 4 * GiB, DiskBytes: 8 * GB, Files: 128 << 10}},
		{"standard-2", Limits{CPUMilli: 1000, MemoryBytes: 6 * GiB, DiskBytes: 12 * GB, Files: 192 << 10}},
		{"standard-3", Limits{CPUMilli: 2000, MemoryBytes: 8 * GiB, DiskBytes: 16 * GB, Files: 256 << 10}},
		{"standard-4", Limits{CPUMilli: 4000, MemoryBytes: 12 * GiB, DiskBytes: 20 * GB, Files: 320 << 10}},
	}
}

// TypeLimits returns l with the zero fields filled from the type of that name,
// if it is not "". The later of two types of one name counts.
func (l Limits) TypeLimits(name string, types []InstanceType) (Limits, error) {
	if name == "" {
		return l, nil
	}
	var names []string
	for _, t := range slices.Backward(types) {
		if t.Name == name {
			return l.WithDefaults(t.Limits), nil
		}
		names = append(names, t.Name)
	}
	slices.Reverse(names)
	return l, &Error{Op: "check type", Kind: Invalid, Err: fmt.Errorf("%.40q is not an instance type of this server", name),
		Hint: fmt.Sprintf("the types are %q", names)}
}
