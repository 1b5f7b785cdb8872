package engine

import (
	"context"
	"errors"

	"github.com/berth-dev/berth/sandbox"
)

// Resume brings a paused sandbox back as it was. One that runs stays as it is;
// one that is stopped has nothing to go on with: Conflict.
func (e *Engine) Resume(ctx context.Context, id string) (sandbox.Sandbox, error) {
	const op = "resume"
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, known(id), err)
	}
	s, err := e.load(ctx, sid)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, sid, err)
	}
	if s.State == sandbox.Stopped && s.Doing == nil {
		return sandbox.Sandbox{}, fail(op, sid, &sandbox.Error{Kind: sandbox.Conflict, Err: errors.New("it is stopped: its memory was not kept"),
			Hint: "berth start boots it on its disk"})
	}
	return e.wakeUp(ctx, op, sid)
}

// wakeUp wakes a sandbox because somebody asked for it.
func (e *Engine) wakeUp(ctx context.Context, op string, id sandbox.ID) (sandbox.Sandbox, error) {
	s, _, err := e.awake(ctx, id, true)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, id, err)
	}
	return s.Sandbox, nil
}
