package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// WaitProcess returns when the process has ended, or ctx.
func (e *Engine) WaitProcess(ctx context.Context, id, process string) (sandbox.Exit, error) {
	const op = "wait"
	s, l, err := e.running(ctx, id)
	if err != nil {
		return sandbox.Exit{}, fail(op, known(id), err)
	}
	exit, err := l.guest.Wait(ctx, process)
	return exit, explain(ctx, op, s, l, err)
}
