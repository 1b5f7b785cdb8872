package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// Get returns one sandbox, by id or name. What none has is NotFound, what none
// could have Invalid.
func (e *Engine) Get(ctx context.Context, id string) (sandbox.Sandbox, error) {
	const op = "get"
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, known(id), err)
	}
	s, err := e.load(ctx, sid)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, sid, err)
	}
	return s.Sandbox, nil
}
