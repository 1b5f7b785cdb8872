package guestclient

import (
	"context"
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// OpenTerminal gives the living terminal of a name, or makes it, and tells which.
func (c *Client) OpenTerminal(ctx context.Context, q sandbox.TerminalRequest) (t sandbox.Terminal, made bool, err error) {
	const op = "open terminal"
	if err := q.Check(); err != nil {
		return t, false, &sandbox.Error{Op: op, Err: err}
	}
	r := &guestv1.OpenTerminalRequest{Name: q.Name, Fresh: q.New, Shell: []byte(q.Shell), Cwd: []byte(q.Cwd), User: q.User,
		Cols: uint32(q.Cols), Rows: uint32(q.Rows)}
	for _, a := range q.Argv {
		r.Argv = append(r.Argv, []byte(a))
	}
	for k, v := range q.Env {
		r.Env = append(r.Env, []byte(k+"="+v))
	}
	a, err := call(c.to(ctx), op, c.terms.Open, r)
	if err != nil {
		return t, false, err
	}
	if t, err = terminal(a.Terminal); err != nil {
		return t, false, broken(op, "%w", err)
	}
	return t, a.Made, nil
}

// AttachTerminal returns what a terminal, by id or name, does: Attached, a seed
// or what came after the offset, output as it comes, then Exit.
func (c *Client) AttachTerminal(ctx context.Context, key string, at sandbox.TerminalAttach) (sandbox.TerminalEvents, error) {
	op := "attach to terminal " + text(key, maxName)
	if at.Cols != 0 || at.Rows != 0 {
		if err := sandbox.CheckTerminalSize(at.Cols, at.Rows); err != nil {
			return nil, &sandbox.Error{Op: op, Err: err}
		}
	}
	return open(c.to(ctx), op, c.terms.Attach, &guestv1.AttachTerminalRequest{Terminal: key, Resume: at.Resume, Offset: at.Offset,
		Cols: uint32(at.Cols), Rows: uint32(at.Rows)}, &terminalReading{at: at.Offset, placed: at.Resume})
}

// TerminalInput types data, whole, after what earlier calls typed. It waits while
// the program does not read, as long as ctx; then a part may have been typed.
func (c *Client) TerminalInput(ctx context.Context, key string, data []byte) error {
	for len(data) > 0 {
		part := data[:min(len(data), inputPart)]
		data = data[len(part):]
		if _, err := callLong(c.to(ctx), "type into terminal", c.terms.Input, &guestv1.TerminalInputRequest{Terminal: key, Data: part}); err != nil {
			return err
		}
	}
	return nil
}

// ResizeTerminal sets a terminal's size for all who see it.
func (c *Client) ResizeTerminal(ctx context.Context, key string, cols, rows int) error {
	const op = "resize terminal"
	if err := sandbox.CheckTerminalSize(cols, rows); err != nil {
		return &sandbox.Error{Op: op, Err: err}
	}
	_, err := call(c.to(ctx), op, c.terms.Resize, &guestv1.ResizeTerminalRequest{Terminal: key, Cols: uint32(cols), Rows: uint32(rows)})
	return err
}

// SignalTerminal sends a signal, "SIGINT" or "2", to the group in the foreground.
// A terminal that has ended is Conflict.
func (c *Client) SignalTerminal(ctx context.Context, key, signal string) error {
	_, err := call(c.to(ctx), "signal terminal", c.terms.Signal, &guestv1.SignalTerminalRequest{Terminal: key, Signal: signal})
	return err
}

// CloseTerminal hangs a terminal up, ends its processes and forgets it.
func (c *Client) CloseTerminal(ctx context.Context, key string) error {
	_, err := call(c.to(ctx), "close terminal", c.terms.Close, &guestv1.CloseTerminalRequest{Terminal: key})
	return err
}

// Terminals lists those that live and the last that ended, in the order they were
// opened.
func (c *Client) Terminals(ctx context.Context) ([]sandbox.Terminal, error) {
	const op = "list terminals"
	r, err := call(c.to(ctx), op, c.terms.List, &guestv1.ListTerminalsRequest{})
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.Terminal, 0, len(r.Terminals))
	for _, t := range r.Terminals {
		out, err := terminal(t)
		if err != nil {
			return nil, broken(op, "%w", err)
		}
		list = append(list, out)
	}
	return list, nil
}

// terminal takes a description over.
func terminal(t *guestv1.Terminal) (sandbox.Terminal, error) {
	if !sandbox.IsTerminalID(t.GetId()) {
		return sandbox.Terminal{}, errorf("terminal id %.40q", t.GetId())
	}
	if err := checkedSize(t.Cols, t.Rows); err != nil {
		return sandbox.Terminal{}, err
	}
	if t.Pid < 1 || t.Offset < 0 {
		return sandbox.Terminal{}, errorf("terminal %s has pid %d, offset %d", t.Id, t.Pid, t.Offset)
	}
	out := sandbox.Terminal{ID: t.Id, Name: text(t.Name, maxName), PID: int(t.Pid), Argv: []string{},
		Cwd: limit(string(t.Cwd), sandbox.MaxPathBytes), User: text(t.User, maxName), Cols: int(t.Cols), Rows: int(t.Rows),
		Title: text(t.Title, maxText), Clients: int(min(t.Clients, 1<<20)), Offset: t.Offset, Started: time.Unix(0, t.StartedUnixNano)}
	for _, a := range t.Argv[:min(len(t.Argv), sandbox.MaxArgs)] {
		out.Argv = append(out.Argv, limit(string(a), maxArgs))
	}
	if t.Exit != nil {
		e := exit(t.Exit)
		out.Exit, out.Ended = &e, time.Unix(0, t.EndedUnixNano)
	}
	return out, nil
}

func checkedSize(cols, rows uint32) error {
	if cols > sandbox.MaxTerminalCols || rows > sandbox.MaxTerminalRows || cols < 1 || rows < 1 {
		return errorf("a size of %d by %d", cols, rows)
	}
	return nil
}
