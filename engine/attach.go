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
	s, l, err := e.running(ctx, id)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	return stream(ctx, op, s, l, func() (sandbox.Events, error) { return l.guest.Attach(ctx, process, from) })
}
