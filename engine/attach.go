package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// Attach streams a process's output from the given offsets, then its exit. The
// process, by id or name, is not ended by the end of this stream.
func (e *Engine) Attach(ctx context.Context, id, process string, from sandbox.Offsets) (sandbox.Events, error) {
	const op = "attach"
	if from.Stdout < 0 || from.Stderr < 0 {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "the offsets %d and %d must not be negative", from.Stdout, from.Stderr)
	}
	return e.streaming(ctx, op, id, sandbox.ActivityStream, false, func(_ *stored, l *live) (sandbox.Events, error) {
		return l.guest.Attach(ctx, process, from)
	})
}
