package gvisor

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Resize changes the memory and the processor share of a live machine, the size
// that programs read included. The other limits hold from the next start.
// Memory that is in use cannot be taken away: Exhausted.
func (d *Driver) Resize(_ context.Context, dm driver.Machine, l sandbox.Limits) error {
	const op = "resize"
	m, ok := dm.(*machine)
	if !ok || m.driver != d {
		return sandbox.Errorf(op, sandbox.Invalid, "the machine is of another driver")
	}
	if err := l.Check(); err != nil {
		return fault(op, m.id, err)
	}
	used, err := m.group.memoryUse()
	if err != nil {
		return m.usageError(err)
	}
	f, err := m.memoryFiles()
	if err != nil {
		return fault(op, m.id, err)
	}
	used -= f.Frozen // which is not the sandbox's fault
	if used > l.MemoryBytes {
		return &sandbox.Error{Op: op, Kind: sandbox.Exhausted, ID: m.id, Err: fmt.Errorf("%d MiB are in use, more than %d", used>>20, l.MemoryBytes>>20),
			Hint: "end what uses the memory, then resize"}
	}
	// The wall is moved out before the limit, and in after it.
	if err := m.group.setMemory(wall(l) + f.Frozen); err != nil {
		return m.usageError(err)
	}
	if err := m.limitMemory(l.MemoryBytes); err != nil {
		return fault(op, m.id, err)
	}
	return m.usageError(m.group.setCPU(l.CPUMilli))
}

// limitMemory tells the engine how much memory the sandbox has.
func (m *machine) limitMemory(bytes int64) error {
	c, err := m.place.control(m.id)
	if err != nil {
		return err
	}
	defer c.Close()
	arg := struct{ Limit uint64 }{uint64(bytes)}
	var ignored map[string]any
	return c.Call("Usage.Collect", &arg, &ignored)
}
