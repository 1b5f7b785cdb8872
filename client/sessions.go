package client

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// OpenSession gives the session of a name, made by the options if there is none.
func (c *Client) OpenSession(ctx context.Context, id string, o sandbox.SessionOptions) (s sandbox.Session, created bool, err error) {
	resp, err := c.answer(ctx, call{op: "open session", method: http.MethodPost, path: []string{"sandboxes", id, "sessions"}, json: o}, &s)
	return s, resp == http.StatusCreated, err
}

// RunInSession queues a command in a session and streams what it does; the first
// event is Started, at once. The command lives no longer than the stream unless
// cmd.Detach is set.
func (c *Client) RunInSession(ctx context.Context, id, session string, cmd sandbox.Command) (sandbox.Events, error) {
	const op = "run in session"
	if err := cmd.CheckInSession(); err != nil { // before a body is sent that would be refused
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	body := wire.Exec{Command: cmd, TimeoutMS: milliseconds(cmd.Timeout)}
	return c.events(ctx, call{op: op, method: http.MethodPost, path: sessionPath(id, session, "run"), json: body})
}

// Sessions lists a sandbox's shell sessions by name.
func (c *Client) Sessions(ctx context.Context, id string) ([]sandbox.Session, error) {
	var out wire.Sessions
	err := c.do(ctx, call{op: "list sessions", method: http.MethodGet, path: []string{"sandboxes", id, "sessions"}}, &out)
	return out.Sessions, err
}

// CancelSession ends the command that runs in a session and drops those that
// wait; with the id of a process, that one alone. It returns how many there were.
func (c *Client) CancelSession(ctx context.Context, id, session, process string) (int, error) {
	var out wire.Cancelled
	err := c.do(ctx, call{op: "cancel session", method: http.MethodPost, path: sessionPath(id, session, "cancel"),
		json: wire.Cancel{Process: process}}, &out)
	return out.Cancelled, err
}

// CloseSession ends a session with all that its shells left running.
func (c *Client) CloseSession(ctx context.Context, id, session string) error {
	return c.do(ctx, call{op: "close session", method: http.MethodDelete, path: sessionPath(id, session)}, nil)
}

func sessionPath(id, session string, what ...string) []string {
	return append([]string{"sandboxes", id, "sessions", session}, what...)
}
