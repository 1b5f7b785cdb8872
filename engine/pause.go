package engine

import (
	"context"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Pause keeps a sandbox's memory, processes, terminals and files, and frees its
// memory before it returns. One that is paused already stays so. Streams break;
// short calls under way are waited for, later ones wake it.
//
// Conflict: it does not run. Exhausted: no room to keep it; it runs on.
func (e *Engine) Pause(ctx context.Context, id string) (sandbox.Sandbox, error) {
	return e.setAside(ctx, id, putting{op: "pause", to: sandbox.Paused, keep: driver.KeepMemory})
}

// setAside is putAside for a caller.
func (e *Engine) setAside(ctx context.Context, id string, p putting) (sandbox.Sandbox, error) {
	done, err := e.task()
	if err != nil {
		return sandbox.Sandbox{}, fail(p.op, "", err)
	}
	defer done()
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, fail(p.op, known(id), err)
	}
	s, err := e.putAside(ctx, sid, p)
	return s, fail(p.op, sid, err)
}
