package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// maxTerminalMessage bounds one message of the server's, in bytes.
const maxTerminalMessage = 1 << 20

// AttachTerminal streams what a terminal, by id or name, shows.
func (c *Client) AttachTerminal(ctx context.Context, id, terminal string, at sandbox.TerminalAttach) (sandbox.TerminalEvents, error) {
	t, err := c.JoinTerminal(ctx, id, terminal, at)
	if err != nil {
		return nil, err
	}
	return t, nil
}

// JoinTerminal attaches to a terminal, by id or name, to see it and to type.
func (c *Client) JoinTerminal(ctx context.Context, id, terminal string, at sandbox.TerminalAttach) (*TerminalConn, error) {
	const op = "attach to terminal"
	v := url.Values{"create": {"false"}}
	setInt(v, "cols", int64(at.Cols))
	setInt(v, "rows", int64(at.Rows))
	if at.Resume {
		v.Set("offset", strconv.FormatInt(at.Offset, 10))
	}
	req, err := c.request(ctx, call{op: op, method: http.MethodGet, path: terminalPath(id, terminal), query: v})
	if err != nil {
		return nil, err
	}
	conn, resp, err := websocket.Dial(ctx, req.URL.String(), &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: req.Header,
		Subprotocols: []string{wire.TerminalProtocol}})
	switch {
	case err == nil:
	case resp != nil && resp.StatusCode >= 400:
		return nil, answerError(op, resp)
	default:
		return nil, sendError(ctx, op, err)
	}
	conn.SetReadLimit(maxTerminalMessage)
	t := &TerminalConn{op: op, conn: conn, at: at.Offset}
	t.ctx, t.cancel = context.WithCancel(ctx)
	return t, nil
}

// TerminalConn is one client's connection to a terminal. Recv is for one
// goroutine at a time; the other methods may be called from many.
type TerminalConn struct {
	op      string
	conn    *websocket.Conn
	ctx     context.Context
	cancel  context.CancelFunc
	at      int64
	seeding int64 // bytes of a seed that are still to come
	ended   bool  // the exit has been given
	once    sync.Once
}

// Recv returns the next event.
func (t *TerminalConn) Recv() (sandbox.TerminalEvent, error) {
	if t.ended {
		return sandbox.TerminalEvent{}, io.EOF
	}
	for {
		kind, b, err := t.conn.Read(t.ctx)
		switch {
		case err != nil:
			return sandbox.TerminalEvent{}, t.broken(err)
		case kind == websocket.MessageText:
			return t.notice(b)
		case len(b) == 0:
			continue
		case t.seeding > 0:
			if t.seeding -= int64(len(b)); t.seeding < 0 {
				return sandbox.TerminalEvent{}, t.broken(errors.New("the seed is longer than it was said to be"))
			}
			return sandbox.TerminalEvent{Seeding: true, Data: b}, nil
		}
		e := sandbox.TerminalEvent{Offset: t.at, Data: b}
		t.at += int64(len(b))
		return e, nil
	}
}

func (t *TerminalConn) notice(b []byte) (sandbox.TerminalEvent, error) {
	var n wire.TerminalNotice
	if err := json.Unmarshal(b, &n); err != nil {
		return sandbox.TerminalEvent{}, t.broken(err)
	}
	switch {
	case n.Error != nil:
		return sandbox.TerminalEvent{}, &sandbox.Error{Op: t.op, Err: wire.Error{Error: *n.Error}.Err()}
	case n.Seed != nil:
		t.at, t.seeding = n.Seed.Offset, n.Seed.Bytes
	case n.Exit != nil:
		t.ended = true
	}
	return sandbox.TerminalEvent{Attached: n.Attached, Seed: n.Seed, Resized: n.Resized, Exit: n.Exit}, nil
}

// Input types data, after what earlier calls typed.
func (t *TerminalConn) Input(ctx context.Context, data []byte) error {
	if err := t.conn.Write(ctx, websocket.MessageBinary, data); err != nil {
		return t.broken(err)
	}
	return nil
}

// Resize sets the terminal's size for all who see it.
func (t *TerminalConn) Resize(ctx context.Context, cols, rows int) error {
	return t.control(ctx, wire.TerminalControl{Resize: &sandbox.TerminalSize{Cols: cols, Rows: rows}})
}

// Signal sends a signal to the group in the foreground.
func (t *TerminalConn) Signal(ctx context.Context, signal string) error {
	return t.control(ctx, wire.TerminalControl{Signal: signal})
}

func (t *TerminalConn) control(ctx context.Context, c wire.TerminalControl) error {
	b, err := json.Marshal(c)
	if err != nil {
		return t.broken(err)
	}
	if err := t.conn.Write(ctx, websocket.MessageText, bytes.TrimSpace(b)); err != nil {
		return t.broken(err)
	}
	return nil
}

func (t *TerminalConn) broken(err error) error {
	if t.ctx.Err() != nil {
		return &sandbox.Error{Op: t.op, Err: context.Cause(t.ctx)}
	}
	return &sandbox.Error{Op: t.op, Kind: sandbox.Unavailable, Err: err}
}

// Close leaves the terminal; it lives on.
func (t *TerminalConn) Close() error {
	t.once.Do(func() {
		t.cancel()
		_ = t.conn.CloseNow() // the server sees the end either way
	})
	return nil
}
