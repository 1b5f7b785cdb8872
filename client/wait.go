package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// StartProcess starts a process that lives on by itself and returns at once.
// What it writes is kept, in bounds; Attach reads it.
func (c *Client) StartProcess(ctx context.Context, id string, cmd sandbox.Command) (p sandbox.Process, err error) {
	const op = "start process"
	if err := cmd.Check(); err != nil {
		return p, &sandbox.Error{Op: op, Err: err}
	}
	err = c.do(ctx, call{op: op, method: http.MethodPost, path: []string{"sandboxes", id, "processes"},
		json: wire.Exec{Command: cmd, TimeoutMS: milliseconds(cmd.Timeout)}}, &p)
	return p, err
}

// RemoveProcess ends a process's tree, if it lives, and forgets its output and
// its exit, which it returns.
func (c *Client) RemoveProcess(ctx context.Context, id, process string) (exit sandbox.Exit, err error) {
	err = c.do(ctx, call{op: "remove process", method: http.MethodDelete, path: []string{"sandboxes", id, "processes", process}}, &exit)
	return exit, err
}

// WaitLine returns the first line of a process's output that matches, or an
// error of kind Conflict if the process ends first.
func (c *Client) WaitLine(ctx context.Context, id, process string, w sandbox.LineWait) (line sandbox.Line, err error) {
	v := url.Values{"for": {"line"}}
	setIf(v, "text", w.Text)
	setIf(v, "regexp", w.Regexp)
	setIf(v, "stream", string(w.Stream))
	setInt(v, "stdout", w.From.Stdout)
	setInt(v, "stderr", w.From.Stderr)
	setInt(v, "timeout_ms", milliseconds(w.Timeout))
	err = c.do(ctx, call{op: "wait", method: http.MethodGet, path: processPath(id, process, "wait"), query: v}, &line)
	return line, err
}

// WaitPort returns when a port inside the sandbox answers, or an error of kind
// Conflict if the process ends first.
func (c *Client) WaitPort(ctx context.Context, id, process string, w sandbox.PortWait) (answer sandbox.PortAnswer, err error) {
	v := url.Values{"for": {"port"}}
	setInt(v, "port", int64(w.Port))
	setIf(v, "path", w.Path)
	setInt(v, "status", int64(w.Status))
	setInt(v, "timeout_ms", milliseconds(w.Timeout))
	err = c.do(ctx, call{op: "wait", method: http.MethodGet, path: processPath(id, process, "wait"), query: v}, &answer)
	return answer, err
}

// Usage is what a sandbox uses of its host now.
func (c *Client) Usage(ctx context.Context, id string) (u sandbox.Usage, err error) {
	err = c.do(ctx, call{op: "measure", method: http.MethodGet, path: []string{"sandboxes", id, "usage"}}, &u)
	return u, err
}
