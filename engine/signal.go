package engine

import "context"

// Signal sends a signal ("SIGTERM", "15") to a process's whole group.
func (e *Engine) Signal(ctx context.Context, id, process, signal string) error {
	return e.ask(ctx, "signal", id, func(l *live) error {
		return l.guest.Signal(ctx, process, signal)
	})
}
