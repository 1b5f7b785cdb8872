package guestclient

import (
	"context"
	"time"

	"github.com/berth-dev/berth/guestapi"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// inputPart is the size that input is sent in: a pipe's worth.
const inputPart = 64 << 10

// Start runs a command and returns its events; the first is Started. ctx bounds
// the whole stream: when it ends, the stream breaks, and the guest kills the
// process tree unless the command says Detach.
func (c *Client) Start(ctx context.Context, cmd sandbox.Command) (sandbox.Events, error) {
	return c.StartTimed(ctx, cmd, nil)
}

// Timing says where the time of a Start went, from the call to the stream's end.
type Timing struct {
	guestapi.Timing               // what the guest says
	Link            time.Duration // the rest: the way there and back
}

// StartTimed is Start, and calls timed once when the stream has come to its end and the
// guest has said how long it took. Nil is nobody.
func (c *Client) StartTimed(ctx context.Context, cmd sandbox.Command, timed func(Timing)) (sandbox.Events, error) {
	const op = "start process"
	if err := cmd.Check(); err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	if err := checkText(op, cmd.Name, cmd.User); err != nil {
		return nil, err
	}
	r := &guestv1.StartRequest{Shell: []byte(cmd.Shell), Name: cmd.Name, Cwd: []byte(cmd.Cwd), User: cmd.User,
		Stdin: cmd.Stdin, TimeoutMs: milliseconds(cmd.Timeout), Merge: cmd.Merge, Lossless: cmd.Lossless, Detach: cmd.Detach}
	for _, a := range cmd.Argv {
		r.Argv = append(r.Argv, []byte(a))
	}
	for k, v := range cmd.Env {
		r.Env = append(r.Env, []byte(k+"="+v))
	}
	return open(briefly(c.to(ctx)), op, c.rpc.Start, r, &processReading{begun: time.Now(), timed: timed})
}

// Attach returns the events of a process, by id or name, from the given offsets
// on: Started, the output that is still kept and that comes, then Exit.
func (c *Client) Attach(ctx context.Context, process string, from sandbox.Offsets) (sandbox.Events, error) {
	op := "attach to process " + text(process, maxName)
	if err := checkText(op, process); err != nil {
		return nil, err
	}
	return open(c.to(ctx), op, c.rpc.Attach,
		&guestv1.AttachRequest{Process: process, StdoutOffset: from.Stdout, StderrOffset: from.Stderr}, &processReading{at: from})
}

// Input writes data to a process's standard input, whole, after what earlier
// calls wrote. It waits while the process does not read, as long as ctx; when
// that ends, a part may have been written.
func (c *Client) Input(ctx context.Context, process string, data []byte) error {
	const op = "send input"
	if err := checkText(op, process); err != nil {
		return err
	}
	for len(data) > 0 {
		part := data[:min(len(data), inputPart)]
		data = data[len(part):]
		if _, err := callLong(c.to(ctx), op, c.rpc.Input, &guestv1.InputRequest{Process: process, Data: part}); err != nil {
			return err
		}
	}
	return nil
}

// CloseInput lets the process read the end of its input.
func (c *Client) CloseInput(ctx context.Context, process string) error {
	const op = "close input"
	if err := checkText(op, process); err != nil {
		return err
	}
	_, err := callLong(c.to(ctx), op, c.rpc.CloseInput, &guestv1.CloseInputRequest{Process: process})
	return err
}

// Signal sends a signal, "SIGTERM" or "15", to a process's whole group. One that
// has ended is Conflict.
func (c *Client) Signal(ctx context.Context, process, signal string) error {
	const op = "signal process"
	if err := checkText(op, process, signal); err != nil {
		return err
	}
	_, err := call(c.to(ctx), op, c.rpc.Signal, &guestv1.SignalRequest{Process: process, Signal: signal})
	return err
}

// Wait returns how a process ended, once it has, as long as ctx lasts.
func (c *Client) Wait(ctx context.Context, process string) (sandbox.Exit, error) {
	const op = "wait for process"
	if err := checkText(op, process); err != nil {
		return sandbox.Exit{}, err
	}
	r, err := callLong(c.to(ctx), op, c.rpc.Wait, &guestv1.WaitRequest{Process: process})
	if err != nil {
		return sandbox.Exit{}, err
	}
	if r.Exit == nil {
		return sandbox.Exit{}, broken(op, "no exit")
	}
	return exit(r.Exit), nil
}

// Processes lists those that were started through the guest, in the order of
// their starts: all that live, and the last that ended. Long arguments are cut.
func (c *Client) Processes(ctx context.Context) ([]sandbox.Process, error) {
	const op = "list processes"
	r, err := call(c.to(ctx), op, c.rpc.ListProcesses, &guestv1.ListProcessesRequest{})
	if err != nil {
		return nil, err
	}
	list := make([]sandbox.Process, 0, len(r.Processes))
	for _, p := range r.Processes {
		q, err := process(p)
		if err != nil {
			return nil, broken(op, "%w", err)
		}
		list = append(list, q)
	}
	return list, nil
}

// milliseconds rounds up, so that a short timeout does not become none.
func milliseconds(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
