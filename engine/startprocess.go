package engine

import (
	"context"
	"errors"

	"github.com/berth-dev/berth/sandbox"
)

// StartProcess starts a process that lives on by itself and returns at once. What it
// writes is kept, in bounds; Attach reads it.
func (e *Engine) StartProcess(ctx context.Context, id string, cmd sandbox.Command) (p sandbox.Process, err error) {
	cmd.Detach, cmd.Lossless = true, false // nobody reads the stream that starts it
	events, err := e.Exec(ctx, id, cmd)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, events.Close()) }()
	first, err := events.Recv()
	if err != nil {
		return p, err
	}
	if first.Started == nil {
		return p, fail("start", known(id), sandbox.Errorf("", sandbox.Internal, "the first event is not the start"))
	}
	return *first.Started, nil
}
