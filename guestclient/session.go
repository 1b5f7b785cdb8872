package guestclient

import (
	"context"
	"regexp"
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

var sessionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// OpenSession gives the session of a name, made by the options if there is none.
func (c *Client) OpenSession(ctx context.Context, o sandbox.SessionOptions) (s sandbox.Session, created bool, err error) {
	const op = "open session"
	if err := o.Check(); err != nil {
		return s, false, &sandbox.Error{Op: op, Err: err}
	}
	q := &guestv1.OpenSessionRequest{Name: o.Name, Cwd: []byte(o.Cwd), User: o.User, Plain: o.Plain}
	for k, v := range o.Env {
		q.Env = append(q.Env, []byte(k+"="+v))
	}
	r, err := call(c.to(ctx), op, c.shell.OpenSession, q)
	if err != nil {
		return s, false, err
	}
	if s, err = session(r.Session); err != nil {
		return s, false, broken(op, "%w", err)
	}
	return s, r.Created, nil
}

// RunInSession queues a command in a session and returns its events; the first
// is Started, at once. When ctx ends, the stream breaks, and the command is
// cancelled unless it says Detach. Env, Cwd and User are the session's own.
func (c *Client) RunInSession(ctx context.Context, name string, cmd sandbox.Command) (sandbox.Events, error) {
	const op = "run in session"
	if err := cmd.CheckInSession(); err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	r := &guestv1.RunInSessionRequest{Session: name, Shell: []byte(cmd.Shell), Name: cmd.Name, Stdin: cmd.Stdin,
		TimeoutMs: milliseconds(cmd.Timeout), Merge: cmd.Merge, Lossless: cmd.Lossless, Detach: cmd.Detach}
	for _, a := range cmd.Argv {
		r.Argv = append(r.Argv, []byte(a))
	}
	return open(c.to(ctx), op, c.shell.RunInSession, r, &processReading{})
}

// Sessions lists the sessions by name.
func (c *Client) Sessions(ctx context.Context) ([]sandbox.Session, error) {
	const op = "list sessions"
	r, err := call(c.to(ctx), op, c.shell.ListSessions, &guestv1.ListSessionsRequest{})
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.Session, 0, len(r.Sessions))
	for _, m := range r.Sessions {
		s, err := session(m)
		if err != nil {
			return nil, broken(op, "%w", err)
		}
		list = append(list, s)
	}
	return list, nil
}

// CancelSession ends the command that runs and drops those that wait; with the
// id of a process, that one alone. It returns how many there were.
func (c *Client) CancelSession(ctx context.Context, name, process string) (int, error) {
	r, err := call(c.to(ctx), "cancel session", c.shell.CancelSession, &guestv1.CancelSessionRequest{Session: name, Process: process})
	if err != nil {
		return 0, err
	}
	return int(max(r.Cancelled, 0)), nil
}

// CloseSession ends a session with all that its shells left running.
func (c *Client) CloseSession(ctx context.Context, name string) error {
	_, err := call(c.to(ctx), "close session", c.shell.CloseSession, &guestv1.CloseSessionRequest{Session: name})
	return err
}

// session takes a description over.
func session(m *guestv1.Session) (sandbox.Session, error) {
	if !sessionName.MatchString(m.GetName()) {
		return sandbox.Session{}, errorf("session name %.80q", m.GetName())
	}
	if m.Running != "" && !processID.MatchString(m.Running) {
		return sandbox.Session{}, errorf("process id %.40q", m.Running)
	}
	return sandbox.Session{Name: m.Name, User: text(m.User, maxName), Shell: limit(string(m.Shell), sandbox.MaxPathBytes),
		Cwd: limit(string(m.Cwd), sandbox.MaxPathBytes), Created: time.Unix(0, m.CreatedUnixNano), PID: int(max(m.Pid, 0)),
		Running: m.Running, Queued: int(max(m.Queued, 0)), Commands: max(m.Commands, 0), Restarts: max(m.Restarts, 0)}, nil
}
