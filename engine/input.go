package engine

import (
	"context"
	"errors"
	"io"

	"github.com/berth-dev/berth/sandbox"
)

// inputChunk is how much input goes to the guest in one message, in bytes.
const inputChunk = 256 << 10

// Input writes all that r gives to a process's standard input, as it comes. It
// returns at r's end; the input stays open until CloseInput.
func (e *Engine) Input(ctx context.Context, id, process string, r io.Reader) error {
	const op = "input"
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return fail(op, known(id), err)
	}
	defer end()
	buf := make([]byte, inputChunk)
	for {
		n, rerr := r.Read(buf)
		if n > 0 {
			if err := l.guest.Input(ctx, process, buf[:n]); err != nil {
				return explain(ctx, op, s, l, err)
			}
		}
		switch {
		case errors.Is(rerr, io.EOF):
			return nil
		case rerr != nil:
			return fail(op, s.ID, rerr)
		}
	}
}

// CloseInput ends a process's standard input: it reads an end of file.
func (e *Engine) CloseInput(ctx context.Context, id, process string) error {
	return e.ask(ctx, "close input", id, func(l *live) error {
		return l.guest.CloseInput(ctx, process)
	})
}
