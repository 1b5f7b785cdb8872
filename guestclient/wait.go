package guestclient

import (
	"context"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// WaitLine returns the first line of a process's output that matches. A process
// that ends first is Conflict.
func (c *Client) WaitLine(ctx context.Context, process string, w sandbox.LineWait) (sandbox.Line, error) {
	const op = "wait for line"
	if err := w.Check(); err != nil {
		return sandbox.Line{}, &sandbox.Error{Op: op, Err: err}
	}
	q := &guestv1.WaitLineRequest{Process: process, Text: []byte(w.Text), Regexp: w.Regexp,
		StdoutOffset: w.From.Stdout, StderrOffset: w.From.Stderr, TimeoutMs: milliseconds(w.Timeout)}
	switch w.Stream {
	case sandbox.Stdout:
		q.Stream = guestv1.Stream_STREAM_STDOUT
	case sandbox.Stderr:
		q.Stream = guestv1.Stream_STREAM_STDERR
	}
	r, err := callLong(c.to(ctx), op, c.procs.WaitLine, q)
	if err != nil {
		return sandbox.Line{}, err
	}
	l := sandbox.Line{Stream: sandbox.Stdout, Offset: r.Offset, Text: limit(string(r.Line), maxLine)}
	if r.Stream == guestv1.Stream_STREAM_STDERR {
		l.Stream = sandbox.Stderr
	}
	if l.Offset < 0 {
		return sandbox.Line{}, broken(op, "a line at offset %d", l.Offset)
	}
	return l, nil
}

// maxLine bounds the bytes of a line that was waited for.
const maxLine = 64 << 10

// WaitPort returns when a port of the sandbox answers. If process is not "" and
// that process ends first, the error is Conflict.
func (c *Client) WaitPort(ctx context.Context, process string, w sandbox.PortWait) (sandbox.PortAnswer, error) {
	const op = "wait for port"
	if err := w.Check(); err != nil {
		return sandbox.PortAnswer{}, &sandbox.Error{Op: op, Err: err}
	}
	r, err := callLong(c.to(ctx), op, c.procs.WaitPort, &guestv1.WaitPortRequest{Process: process, Port: int32(w.Port),
		Path: w.Path, Status: int32(w.Status), TimeoutMs: milliseconds(w.Timeout)})
	if err != nil {
		return sandbox.PortAnswer{}, err
	}
	return sandbox.PortAnswer{Address: text(r.Address, maxName), Status: int(min(max(r.Status, 0), 999))}, nil
}

// Forget ends a process's tree, if it lives, and forgets its output and exit,
// which it returns.
func (c *Client) Forget(ctx context.Context, process string) (sandbox.Exit, error) {
	const op = "forget process"
	r, err := call(c.to(ctx), op, c.procs.Forget, &guestv1.ForgetRequest{Process: process})
	if err != nil {
		return sandbox.Exit{}, err
	}
	if r.Exit == nil {
		return sandbox.Exit{}, broken(op, "no exit")
	}
	return exit(r.Exit), nil
}

// processUsage takes over what a tree uses; nil where the guest does not say.
func processUsage(u *guestv1.ProcessUsage) *sandbox.ProcessUsage {
	if u == nil {
		return nil
	}
	return &sandbox.ProcessUsage{CPUMillis: max(u.CpuMs, 0), MemoryBytes: max(u.MemoryBytes, 0), Processes: int(max(u.Processes, 0))}
}
