package guest

import (
	"context"
	"errors"
	"os"
	"time"
)

// input is the writing end of a process's standard input. Writes are whole and
// in the order of their calls; a process that does not read makes them wait.
type input struct {
	turn chan struct{} // holds one token: whose turn it is to write
	pipe *os.File
	shut bool // guarded by turn
}

func newInput(pipe *os.File) *input {
	return &input{turn: make(chan struct{}, 1), pipe: pipe}
}

// write sends all of p, or fails when ctx ends; then a part may have been sent.
func (in *input) write(ctx context.Context, p []byte) error {
	if err := in.take(ctx); err != nil {
		return err
	}
	defer in.give()
	if in.shut {
		return refuse(conflict, "", "the process's input is closed")
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		in.pipe.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := in.pipe.Write(p)
	if !stop() {
		<-cut
		in.pipe.SetWriteDeadline(time.Time{})
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return refuse(codeOfContext(ctx), "", "the process took %d of %d bytes: %w", n, len(p), ctx.Err())
	case errors.Is(err, os.ErrClosed):
		return refuse(conflict, "", "the process has ended")
	}
	return fromOS(err)
}

// close lets the process read the end of the file, after what was written. A
// process that has ended, or whose input is closed, is no error.
func (in *input) close(ctx context.Context) error {
	if err := in.take(ctx); err != nil {
		return err
	}
	defer in.give()
	if in.shut {
		return nil
	}
	in.shut = true
	if err := in.pipe.Close(); !errors.Is(err, os.ErrClosed) { // abandon may have been first
		return fromOS(err)
	}
	return nil
}

// abandon closes the pipe at once; a write that waits fails.
func (in *input) abandon() { in.pipe.Close() }

func (in *input) take(ctx context.Context) error {
	select {
	case in.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return refuse(codeOfContext(ctx), "", "waiting to write: %w", ctx.Err())
	}
}

func (in *input) give() { <-in.turn }
