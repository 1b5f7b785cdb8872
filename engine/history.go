package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// History returns what a sandbox used in the last day while it ran, the oldest sample
// first, as of now. It wakes nothing and outlives restarts; a server that is killed
// loses the last minutes of it.
func (e *Engine) History(ctx context.Context, id string, q sandbox.HistoryQuery) ([]sandbox.Sample, error) {
	const op = "read history"
	if err := q.Check(); err != nil {
		return nil, fail(op, "", err)
	}
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	if l := e.held(sid); l != nil {
		e.measure(ctx, sid, l)
	}
	return e.meter.History(sid, q), nil
}
