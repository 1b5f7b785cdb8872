package sandbox

import "fmt"

// Limits bounds what one sandbox may use. A zero field means the default of
// DefaultLimits; there is no way to ask for "unlimited".
type Limits struct {
	CPUMilli    int64 `json:"cpu_milli"`    // thousandths of a core, hard share; 50 to 256,000
	MemoryBytes int64 `json:"memory_bytes"` // processes, page tables and the kernel's own; 64 MiB to 4 TiB
	DiskBytes   int64 `json:"disk_bytes"`   // what may be written on top of the template; 16 MiB to 64 TiB
	Processes   int64 `json:"processes"`    // tasks (threads) alive at once, Berth's own included; 32 to 1,000,000
	OpenFiles   int64 `json:"open_files"`   // descriptors a process may hold; 64 to 1,048,576

	// Files is how many files and directories may be there beside the template's
	// own, 1,024 to 100,000,000. 0, in a sandbox that was made before there was a
	// bound: none.
	Files int64 `json:"files"`

	// FuseMounts is how many FUSE file systems programs may have mounted at once, at
	// most 16: their servers run inside. 0: none. A change holds from the next start.
	FuseMounts int64 `json:"fuse_mounts,omitempty"`
}

// MaxFuseMounts bounds Limits.FuseMounts.
const MaxFuseMounts = 16

// DefaultLimits is what a sandbox gets that asks for nothing.
func DefaultLimits() Limits {
	return Limits{CPUMilli: 1000, MemoryBytes: 2 << 30, DiskBytes: 8 << 30, Processes: 1024, OpenFiles: 65536, Files: 131_072}
}

// WithDefaults returns l with every zero field set from d.
func (l Limits) WithDefaults(d Limits) Limits {
	for _, b := range limitBounds {
		if v := b.field(&l); *v == 0 {
			*v = *b.field(&d)
		}
	}
	return l
}

// Check reports an error of kind Invalid for the first field that lies outside
// its range. Zero fields are outside: call WithDefaults first.
func (l Limits) Check() error {
	for _, b := range limitBounds {
		if v := *b.field(&l); (v < b.least || v > b.most) && (v != 0 || b.name != "files") {
			return &Error{Op: "check limits", Kind: Invalid,
				Err:  fmt.Errorf("%s is %d", b.name, v),
				Hint: fmt.Sprintf("%s takes %d to %d; leave it out for the default", b.name, b.least, b.most)}
		}
	}
	return nil
}

// limitBounds is the one table of the fields, their names and their ranges.
var limitBounds = []struct {
	name        string
	least, most int64
	field       func(*Limits) *int64
}{
	{"cpu_milli", 50, 256_000, func(l *Limits) *int64 { return &l.CPUMilli }},
	{"memory_bytes", 64 << 20, 4 << 40, func(l *Limits) *int64 { return &l.MemoryBytes }},
	{"disk_bytes", 16 << 20, 64 << 40, func(l *Limits) *int64 { return &l.DiskBytes }},
	{"processes", 32, 1_000_000, func(l *Limits) *int64 { return &l.Processes }},
	{"open_files", 64, 1 << 20, func(l *Limits) *int64 { return &l.OpenFiles }},
	{"files", 1024, 100_000_000, func(l *Limits) *int64 { return &l.Files }},
	{"fuse_mounts", 0, MaxFuseMounts, func(l *Limits) *int64 { return &l.FuseMounts }},
}
