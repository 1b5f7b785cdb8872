package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// Start makes a sandbox run: a stopped one boots on its disk, a paused one goes
// on as it was. One that runs stays as it is.
func (e *Engine) Start(ctx context.Context, id string) (sandbox.Sandbox, error) {
	const op = "start"
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, known(id), err)
	}
	return e.wakeUp(ctx, op, sid)
}
