package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// RemoveProcess ends a process's tree, if it lives, and forgets its output and its
// exit, which it returns.
func (e *Engine) RemoveProcess(ctx context.Context, id, process string) (exit sandbox.Exit, err error) {
	err = e.ask(ctx, "remove process", id, func(l *live) error {
		exit, err = l.guest.Forget(ctx, process)
		return err
	})
	return exit, err
}
