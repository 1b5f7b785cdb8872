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
	return pour(r, inputChunk,
		func(part []byte) error { return explain(ctx, op, s, l, l.guest.Input(ctx, process, part)) },
		func(err error) error { return fail(op, s.ID, err) })
}

// pour hands over all that r gives, in parts of at most size bytes, as it comes. failed
// makes an error of one of r's.
func pour(r io.Reader, size int, take func([]byte) error, failed func(error) error) error {
	buf := make([]byte, size)
	for {
		n, rerr := r.Read(buf)
		if n > 0 {
			if err := take(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(rerr, io.EOF):
			return nil
		case rerr != nil:
			return failed(rerr)
		}
	}
}

// CloseInput ends a process's standard input: it reads an end of file.
func (e *Engine) CloseInput(ctx context.Context, id, process string) error {
	return e.ask(ctx, "close input", id, func(l *live) error {
		return l.guest.CloseInput(ctx, process)
	})
}
