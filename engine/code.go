package engine

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/berth-dev/berth/sandbox"
)

// CreateCodeContext makes a context and returns once its kernel is ready. Its
// environment, user and folder fall back as those of a command do.
//
// Unsupported: no kernel of the language is installed. Conflict: the name is taken.
func (e *Engine) CreateCodeContext(ctx context.Context, id string, o sandbox.CodeOptions) (c sandbox.CodeContext, err error) {
	const op = "create context"
	if err := o.Check(); err != nil {
		return c, fail(op, "", err)
	}
	s, l, end, err := e.using(ctx, id, sandbox.ActivityExec)
	if err != nil {
		return c, fail(op, known(id), err)
	}
	defer end()
	if o, err = s.codeOptions(o); err != nil {
		return c, fail(op, s.ID, err)
	}
	c, err = l.guest.CreateCodeContext(ctx, o)
	return c, explain(ctx, op, s, l, err)
}

// codeOptions fills in what the options of a context leave open.
func (s *stored) codeOptions(o sandbox.CodeOptions) (sandbox.CodeOptions, error) {
	cmd, err := s.complete(sandbox.Command{Env: o.Env, Cwd: o.Cwd, User: o.User})
	o.Env, o.Cwd, o.User = cmd.Env, cmd.Cwd, cmd.User
	o.Language = sandbox.Language(orElse(o.Language, sandbox.DefaultLanguage))
	return o, err
}

// CodeContexts lists a sandbox's contexts in the order of their creation.
func (e *Engine) CodeContexts(ctx context.Context, id string) (all []sandbox.CodeContext, err error) {
	err = e.ask(ctx, "list contexts", id, func(l *live) error {
		all, err = l.guest.CodeContexts(ctx)
		return err
	})
	return all, err
}

// CodeContext returns one context, by id or name, or NotFound.
func (e *Engine) CodeContext(ctx context.Context, id, name string) (c sandbox.CodeContext, err error) {
	all, err := e.CodeContexts(ctx, id)
	if err != nil {
		return c, err
	}
	for _, c := range all {
		if c.ID == name || c.Name == name {
			return c, nil
		}
	}
	return c, &sandbox.Error{Op: "get context", Kind: sandbox.NotFound, ID: known(id), Err: fmt.Errorf("no context %.80q", name),
		Hint: "list the sandbox's contexts to see those that are"}
}

// RestartCodeContext gives a context an empty kernel and ends its runs.
func (e *Engine) RestartCodeContext(ctx context.Context, id, name string) (c sandbox.CodeContext, err error) {
	const op = "restart context"
	s, l, end, err := e.using(ctx, id, sandbox.ActivityExec)
	if err != nil {
		return c, fail(op, known(id), err)
	}
	defer end()
	c, err = l.guest.RestartCodeContext(ctx, name)
	return c, explain(ctx, op, s, l, err)
}

// InterruptCodeContext breaks off the run that is under way in a context. That none
// is there is no error.
func (e *Engine) InterruptCodeContext(ctx context.Context, id, name string) error {
	return e.ask(ctx, "interrupt context", id, func(l *live) error { return l.guest.InterruptCodeContext(ctx, name) })
}

// RemoveCodeContext ends a context, its kernel and its runs.
func (e *Engine) RemoveCodeContext(ctx context.Context, id, name string) error {
	return e.ask(ctx, "remove context", id, func(l *live) error { return l.guest.RemoveCodeContext(ctx, name) })
}

// RunCode queues code in a context and streams what it does; the first event is
// CodeStarted, at once. The run is interrupted when the stream ends unless r.Detach
// is set. Without a context the language's own is used, which is named after it and
// made at its first use.
func (e *Engine) RunCode(ctx context.Context, id string, r sandbox.CodeRun) (sandbox.CodeEvents, error) {
	const op = "run code"
	if err := r.Check(); err != nil {
		return nil, fail(op, "", err)
	}
	activity := sandbox.ActivityExec
	if r.Detach {
		activity = sandbox.ActivityStream
	}
	return e.codeStream(ctx, op, id, activity, func(s *stored, l *live) (sandbox.CodeEvents, error) {
		var open sandbox.CodeOptions
		if r.Language != "" {
			r.Language = sandbox.Language(r.Language)
		}
		if r.Context == "" {
			var err error
			if open, err = s.codeOptions(sandbox.CodeOptions{Language: r.Language}); err != nil {
				return nil, err
			}
			open.Name = open.Language
		}
		return l.guest.RunCode(ctx, r, open)
	})
}

// AttachCode streams what a run did behind an event, CodeStarted before that. The run
// is not ended by the end of this stream.
func (e *Engine) AttachCode(ctx context.Context, id, run string, after int64) (sandbox.CodeEvents, error) {
	const op = "attach to run"
	if after < 0 {
		return nil, fail(op, "", sandbox.Errorf("check place", sandbox.Invalid, "event %d must not be negative", after))
	}
	return e.codeStream(ctx, op, id, sandbox.ActivityStream, func(_ *stored, l *live) (sandbox.CodeEvents, error) {
		return l.guest.AttachCode(ctx, run, after)
	})
}

// CancelCode drops a run that waits for its turn and interrupts one that is under
// way. That it has ended is no error.
func (e *Engine) CancelCode(ctx context.Context, id, run string) error {
	return e.ask(ctx, "cancel run", id, func(l *live) error { return l.guest.CancelCode(ctx, run) })
}

// CodeLanguages lists the languages that have a kernel in a sandbox.
func (e *Engine) CodeLanguages(ctx context.Context, id string) (all []string, err error) {
	const op = "list languages"
	s, l, end, err := e.using(ctx, id, shortCall)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	defer end()
	all, err = l.guest.CodeLanguages(ctx, s.Base.User)
	return all, explain(ctx, op, s, l, err)
}

// codeStream opens a stream of a run in a sandbox, which it wakes. The stream is an
// activity until it is closed or ctx ends.
func (e *Engine) codeStream(ctx context.Context, op, id string, a sandbox.Activity, open func(*stored, *live) (sandbox.CodeEvents, error)) (sandbox.CodeEvents, error) {
	s, l, end, err := e.using(ctx, id, a)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	why := func(err error) error { return explain(ctx, op, s, l, err) }
	events, err := open(s, l)
	if err != nil {
		end()
		return nil, why(err)
	}
	return &explainedCode{events, why, end, context.AfterFunc(ctx, end)}, nil
}

// explainedCode is a stream whose break is explained.
type explainedCode struct {
	sandbox.CodeEvents
	why    func(error) error
	end    func() // of the activity
	detach func() bool
}

func (x *explainedCode) Close() error {
	err := x.CodeEvents.Close()
	x.detach()
	x.end()
	return err
}

func (x *explainedCode) Recv() (sandbox.CodeEvent, error) {
	event, err := x.CodeEvents.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		err = x.why(err)
	}
	return event, err
}
