package engine

import (
	"context"
	"errors"
	"io"
	"maps"

	"github.com/berth-dev/berth/sandbox"
)

// OpenTerminal gives the living terminal of a name, or makes it, and tells which.
// A new one's program gets the environment, user and directory that Exec gives.
func (e *Engine) OpenTerminal(ctx context.Context, id string, req sandbox.TerminalRequest) (t sandbox.Terminal, made bool, err error) {
	const op = "open terminal"
	if err := req.Check(); err != nil {
		return t, false, fail(op, "", err)
	}
	s, l, end, err := e.using(ctx, id, shortCall)
	if err != nil {
		return t, false, fail(op, known(id), err)
	}
	defer end()
	env := make(map[string]string, len(s.Base.Env)+len(s.Env)+len(req.Env))
	s.Trust.environment(env)
	maps.Copy(env, s.Base.Env)
	maps.Copy(env, s.Env)
	maps.Copy(env, req.Env)
	if err := sandbox.CheckEnv(env); err != nil {
		return t, false, fail(op, s.ID, err)
	}
	req.Env, req.User, req.Cwd = env, orElse(req.User, s.Base.User), orElse(req.Cwd, s.Base.Workdir)
	t, made, err = l.guest.OpenTerminal(ctx, req)
	return t, made, explain(ctx, op, s, l, err)
}

// AttachTerminal streams what a terminal, by id or name, shows: Attached, then a
// seed or the output after the offset, then what comes, until its exit. The
// terminal is not ended by the end of this stream.
func (e *Engine) AttachTerminal(ctx context.Context, id, terminal string, at sandbox.TerminalAttach) (sandbox.TerminalEvents, error) {
	const op = "attach to terminal"
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	why := func(err error) error { return explain(ctx, op, s, l, err) }
	events, err := l.guest.AttachTerminal(ctx, terminal, at)
	if err != nil {
		end()
		return nil, why(err)
	}
	return &explainedTerminal{events, why, end, context.AfterFunc(ctx, end)}, nil
}

// explainedTerminal is a stream whose break is explained.
type explainedTerminal struct {
	sandbox.TerminalEvents
	why    func(error) error
	end    func() // of the activity
	detach func() bool
}

func (x *explainedTerminal) Close() error {
	err := x.TerminalEvents.Close()
	x.detach()
	x.end()
	return err
}

func (x *explainedTerminal) Recv() (sandbox.TerminalEvent, error) {
	event, err := x.TerminalEvents.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		err = x.why(err)
	}
	return event, err
}

// TerminalInput types all that r gives, as it comes.
func (e *Engine) TerminalInput(ctx context.Context, id, terminal string, r io.Reader) error {
	const op = "type into terminal"
	s, l, end, err := e.using(ctx, id, sandbox.ActivityStream)
	if err != nil {
		return fail(op, known(id), err)
	}
	defer end()
	return pour(r, terminalChunk,
		func(part []byte) error { return explain(ctx, op, s, l, l.guest.TerminalInput(ctx, terminal, part)) },
		func(err error) error { return fail(op, s.ID, err) })
}

// terminalChunk is how much is typed in one message, in bytes.
const terminalChunk = 32 << 10

// ResizeTerminal sets a terminal's size for all who see it: the last one set
// counts.
func (e *Engine) ResizeTerminal(ctx context.Context, id, terminal string, cols, rows int) error {
	return e.ask(ctx, "resize terminal", id, func(l *live) error {
		return l.guest.ResizeTerminal(ctx, terminal, cols, rows)
	})
}

// SignalTerminal sends a signal to the group in a terminal's foreground.
func (e *Engine) SignalTerminal(ctx context.Context, id, terminal, signal string) error {
	return e.ask(ctx, "signal terminal", id, func(l *live) error {
		return l.guest.SignalTerminal(ctx, terminal, signal)
	})
}

// CloseTerminal hangs a terminal up, ends its processes and forgets it.
func (e *Engine) CloseTerminal(ctx context.Context, id, terminal string) error {
	return e.ask(ctx, "close terminal", id, func(l *live) error {
		return l.guest.CloseTerminal(ctx, terminal)
	})
}

// Terminals lists the terminals that live and the last that ended.
func (e *Engine) Terminals(ctx context.Context, id string) (all []sandbox.Terminal, err error) {
	err = e.ask(ctx, "list terminals", id, func(l *live) error {
		all, err = l.guest.Terminals(ctx)
		return err
	})
	return all, err
}
