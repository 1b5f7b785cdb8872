package gvisor

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Resize changes the memory and the processor share of a live machine; what
// programs inside read as the size of the memory stays as it was at the start.
// The other limits hold from the next start. Memory that is in use cannot be
// taken away: Exhausted.
func (d *Driver) Resize(_ context.Context, dm driver.Machine, l sandbox.Limits) error {
	const op = "resize"
	m, ok := dm.(*machine)
	if !ok || m.driver != d {
		return sandbox.Errorf(op, sandbox.Invalid, "the machine is of another driver")
	}
	if err := l.Check(); err != nil {
		return fault(op, m.id, err)
	}
	if err := m.group.setMemory(l.MemoryBytes); err != nil {
		if errors.Is(err, unix.EBUSY) {
			return &sandbox.Error{Op: op, Kind: sandbox.Exhausted, ID: m.id, Err: err, Hint: "more memory than that is in use"}
		}
		return m.usageError(err)
	}
	return m.usageError(m.group.setCPU(l.CPUMilli))
}
