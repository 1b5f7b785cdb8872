package client

import (
	"context"
	"io"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// OpenTerminal gives the living terminal of a name, or makes it, and tells which.
func (c *Client) OpenTerminal(ctx context.Context, id string, req sandbox.TerminalRequest) (t sandbox.Terminal, made bool, err error) {
	if err := req.Check(); err != nil { // before a body is sent that would be refused
		return t, false, &sandbox.Error{Op: "open terminal", Err: err}
	}
	status, err := c.answer(ctx, call{op: "open terminal", method: http.MethodPost, path: []string{"sandboxes", id, "terminals"}, json: req}, &t)
	return t, status == http.StatusCreated, err
}

// TerminalInput types all that r gives, as it comes.
func (c *Client) TerminalInput(ctx context.Context, id, terminal string, r io.Reader) error {
	return c.do(ctx, call{op: "type into terminal", method: http.MethodPost, path: terminalPath(id, terminal, "input"), body: r}, nil)
}

// ResizeTerminal sets a terminal's size for all who see it.
func (c *Client) ResizeTerminal(ctx context.Context, id, terminal string, cols, rows int) error {
	return c.do(ctx, call{op: "resize terminal", method: http.MethodPost, path: terminalPath(id, terminal, "resize"),
		json: sandbox.TerminalSize{Cols: cols, Rows: rows}}, nil)
}

// SignalTerminal sends a signal to the group in a terminal's foreground.
func (c *Client) SignalTerminal(ctx context.Context, id, terminal, signal string) error {
	return c.do(ctx, call{op: "signal terminal", method: http.MethodPost, path: terminalPath(id, terminal, "signal"),
		json: wire.Signal{Signal: signal}}, nil)
}

// CloseTerminal hangs a terminal up, ends its processes and forgets it.
func (c *Client) CloseTerminal(ctx context.Context, id, terminal string) error {
	return c.do(ctx, call{op: "close terminal", method: http.MethodDelete, path: terminalPath(id, terminal)}, nil)
}

// Terminals lists the terminals that live and the last that ended.
func (c *Client) Terminals(ctx context.Context, id string) ([]sandbox.Terminal, error) {
	var out wire.Terminals
	err := c.do(ctx, call{op: "list terminals", method: http.MethodGet, path: []string{"sandboxes", id, "terminals"}}, &out)
	return out.Terminals, err
}

func terminalPath(id, terminal string, what ...string) []string {
	return append([]string{"sandboxes", id, "terminals", terminal}, what...)
}
