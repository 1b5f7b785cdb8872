package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Exec starts a process and streams what it does; the first event is Started.
// The stream lives no longer than ctx, and the process no longer than the
// stream unless cmd.Detach is set.
func (c *Client) Exec(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Events, error) {
	if err := cmd.Check(); err != nil { // before a body is sent that would be refused
		return nil, &sandbox.Error{Op: "exec", Err: err}
	}
	body := wire.Exec{Command: cmd, TimeoutMS: milliseconds(cmd.Timeout)}
	return c.events(ctx, call{op: "exec", method: http.MethodPost, path: []string{"sandboxes", id, "exec"}, json: body})
}

// Attach streams a process's output from the given offsets, then its exit.
func (c *Client) Attach(ctx context.Context, id, process string, from sandbox.Offsets) (sandbox.Events, error) {
	v := url.Values{}
	setInt(v, "stdout", from.Stdout)
	setInt(v, "stderr", from.Stderr)
	return c.events(ctx, call{op: "attach", method: http.MethodGet, path: processPath(id, process, "output"), query: v})
}

// Input writes all that r gives to a process's standard input, as it comes.
func (c *Client) Input(ctx context.Context, id, process string, r io.Reader) error {
	return c.do(ctx, call{op: "input", method: http.MethodPost, path: processPath(id, process, "input"), body: r}, nil)
}

// CloseInput ends a process's standard input.
func (c *Client) CloseInput(ctx context.Context, id, process string) error {
	return c.do(ctx, call{op: "close input", method: http.MethodPost, path: processPath(id, process, "input"),
		query: url.Values{"close": {"true"}}, body: bytes.NewReader(nil)}, nil)
}

// Signal sends a signal ("SIGTERM", "15") to a process's whole group.
func (c *Client) Signal(ctx context.Context, id, process, signal string) error {
	return c.do(ctx, call{op: "signal", method: http.MethodPost, path: processPath(id, process, "signal"),
		json: wire.Signal{Signal: signal}}, nil)
}

// Processes lists the processes that were started through Berth.
func (c *Client) Processes(ctx context.Context, id string) ([]sandbox.Process, error) {
	var out wire.Processes
	err := c.do(ctx, call{op: "list processes", method: http.MethodGet, path: []string{"sandboxes", id, "processes"}}, &out)
	return out.Processes, err
}

// WaitProcess returns when the process has ended.
func (c *Client) WaitProcess(ctx context.Context, id, process string) (sandbox.Exit, error) {
	var e sandbox.Exit
	err := c.do(ctx, call{op: "wait", method: http.MethodGet, path: processPath(id, process, "wait")}, &e)
	return e, err
}

func processPath(id, process, what string) []string {
	return []string{"sandboxes", id, "processes", process, what}
}

// milliseconds rounds up: a timeout never becomes none.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
