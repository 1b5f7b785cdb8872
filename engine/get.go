package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// Get returns one sandbox. An id that none has is NotFound, one that none could
// have Invalid.
func (e *Engine) Get(ctx context.Context, id string) (sandbox.Sandbox, error) {
	const op = "get"
	sid, err := parseID(id)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	s, err := e.load(ctx, sid)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, sid, err)
	}
	return s.Sandbox, nil
}
