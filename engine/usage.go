package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// Usage is what a sandbox uses of its host now.
func (e *Engine) Usage(ctx context.Context, id string) (u sandbox.Usage, err error) {
	const op = "measure"
	s, l, err := e.running(ctx, id)
	if err != nil {
		return u, fail(op, known(id), err)
	}
	m, err := l.machine.Usage(ctx)
	if err != nil {
		return u, explain(ctx, op, s, l, err)
	}
	u = sandbox.Usage{MemoryBytes: m.MemoryBytes, CPUMillis: m.CPU.Milliseconds(), DiskBytes: m.DiskBytes}
	all, err := l.guest.Processes(ctx)
	if err != nil {
		return u, explain(ctx, op, s, l, err)
	}
	for _, p := range all {
		if p.Usage != nil {
			u.Processes += p.Usage.Processes
		}
	}
	return u, nil
}
