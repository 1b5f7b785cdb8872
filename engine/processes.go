package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// Processes lists the processes that were started through Berth.
func (e *Engine) Processes(ctx context.Context, id string) (all []sandbox.Process, err error) {
	err = e.ask(ctx, "list processes", id, func(l *live) error {
		all, err = l.guest.Processes(ctx)
		return err
	})
	return all, err
}
