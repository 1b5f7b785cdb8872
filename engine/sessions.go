package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// OpenSession gives the session of a name, made by the options if there is none.
// Its environment, user and folder fall back as those of a command do.
func (e *Engine) OpenSession(ctx context.Context, id string, o sandbox.SessionOptions) (session sandbox.Session, created bool, err error) {
	const op = "open session"
	if err := o.Check(); err != nil {
		return session, false, fail(op, "", err)
	}
	s, l, end, err := e.using(ctx, id, shortCall)
	if err != nil {
		return session, false, fail(op, known(id), err)
	}
	defer end()
	cmd, err := s.complete(sandbox.Command{Env: o.Env, Cwd: o.Cwd, User: o.User})
	if err != nil {
		return session, false, fail(op, s.ID, err)
	}
	o.Env, o.Cwd = cmd.Env, cmd.Cwd
	if o.User == "" { // that of a session which is there stays
		o.User, err = e.sessionUser(ctx, l, o.Name, cmd.User)
		if err != nil {
			return session, false, explain(ctx, op, s, l, err)
		}
	}
	session, created, err = l.guest.OpenSession(ctx, o)
	return session, created, explain(ctx, op, s, l, err)
}

// sessionUser is whose a session is to be that names no user.
func (e *Engine) sessionUser(ctx context.Context, l *live, name, fallback string) (string, error) {
	all, err := l.guest.Sessions(ctx)
	if err != nil {
		return "", err
	}
	for _, s := range all {
		if s.Name == name {
			return "", nil
		}
	}
	return fallback, nil
}

// RunInSession queues a command in a session and streams what it does; the first
// event is Started, at once. The command lives no longer than the stream unless
// cmd.Detach is set.
func (e *Engine) RunInSession(ctx context.Context, id, session string, cmd sandbox.Command) (sandbox.Events, error) {
	const op = "run in session"
	if err := cmd.CheckInSession(); err != nil {
		return nil, fail(op, "", err)
	}
	activity := sandbox.ActivityExec
	if cmd.Detach {
		activity = sandbox.ActivityStream
	}
	return e.streaming(ctx, op, id, activity, !cmd.Detach, func(_ *stored, l *live) (sandbox.Events, error) {
		return l.guest.RunInSession(ctx, session, cmd)
	})
}

// Sessions lists a sandbox's shell sessions by name.
func (e *Engine) Sessions(ctx context.Context, id string) (all []sandbox.Session, err error) {
	err = e.ask(ctx, "list sessions", id, func(l *live) error {
		all, err = l.guest.Sessions(ctx)
		return err
	})
	return all, err
}

// CancelSession ends the command that runs in a session and drops those that
// wait; with the id of a process, that one alone. It returns how many there were.
func (e *Engine) CancelSession(ctx context.Context, id, session, process string) (n int, err error) {
	err = e.ask(ctx, "cancel session", id, func(l *live) error {
		n, err = l.guest.CancelSession(ctx, session, process)
		return err
	})
	return n, err
}

// CloseSession ends a session with all that its shells left running.
func (e *Engine) CloseSession(ctx context.Context, id, session string) error {
	return e.ask(ctx, "close session", id, func(l *live) error {
		return l.guest.CloseSession(ctx, session)
	})
}
