package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// Usage is what a running sandbox uses of its host now. It wakes none, and
// keeps none awake: one that does not run is Conflict.
func (e *Engine) Usage(ctx context.Context, id string) (u sandbox.Usage, err error) {
	const op = "measure"
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return u, fail(op, known(id), err)
	}
	s, err := e.load(ctx, sid)
	if err != nil {
		return u, fail(op, sid, err)
	}
	l := e.held(sid)
	if s.State != sandbox.Running || l == nil {
		return u, fail(op, sid, notRunning(s))
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
