package e2b

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/dialect/e2b/envd/process"
	"github.com/berth-dev/berth/sandbox"
)

// processes is the service process.Process of a sandbox's guest port.
type processes struct{ *Dialect }

// List lists what runs.
func (p *processes) List(ctx context.Context, _ *connect.Request[process.ListRequest]) (*connect.Response[process.ListResponse], error) {
	t := targetOf(ctx)
	out := &process.ListResponse{}
	all, err := p.engine.Processes(ctx, t.id)
	if err != nil {
		return nil, p.rpcError(err)
	}
	for _, one := range all {
		if one.Exit == nil && !one.Terminal {
			out.Processes = append(out.Processes, info(one.PID, one.Argv, one.Cwd, one.Name))
		}
	}
	terms, err := p.engine.Terminals(ctx, t.id)
	if err != nil {
		return nil, p.rpcError(err)
	}
	for _, one := range terms {
		if one.Exit == nil {
			out.Processes = append(out.Processes, info(one.PID, one.Argv, one.Cwd, ""))
		}
	}
	return connect.NewResponse(out), nil
}

func info(pid int, argv []string, cwd, tag string) *process.ProcessInfo {
	i := &process.ProcessInfo{Pid: uint32(pid), Config: &process.ProcessConfig{Cwd: &cwd}}
	if len(argv) > 0 {
		i.Config.Cmd, i.Config.Args = argv[0], argv[1:]
	}
	if tag != "" {
		i.Tag = &tag
	}
	return i
}

// Start runs a program, with a terminal or without. It lives on when the stream
// ends, until the request's deadline.
func (p *processes) Start(ctx context.Context, r *connect.Request[process.StartRequest], stream *connect.ServerStream[process.StartResponse]) error {
	t, config := targetOf(ctx), r.Msg.Process
	if config == nil || config.Cmd == "" {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("process.cmd is required"))
	}
	send := func(e *process.ProcessEvent) error { return stream.Send(&process.StartResponse{Event: e}) }
	ping := pingEvery(r.Header())
	if r.Msg.Pty != nil {
		return p.rpcError(p.startTerminal(ctx, t, r.Msg, ping, send))
	}
	cmd := sandbox.Command{Argv: append([]string{config.Cmd}, config.Args...), Env: t.env(config.Envs), Cwd: t.cwd(config), User: t.user,
		Stdin: r.Msg.Stdin == nil || *r.Msg.Stdin, Name: r.Msg.GetTag(), Lossless: true, Detach: true}
	if deadline, ok := ctx.Deadline(); ok {
		cmd.Timeout = max(time.Millisecond, time.Until(deadline))
	}
	events, err := p.engine.Exec(ctx, t.id, cmd)
	if err != nil {
		return p.rpcError(p.startError(ctx, t, cmd.Cwd, err))
	}
	return p.rpcError(relay(ctx, events, ping, func(e *process.ProcessEvent) error {
		if e.GetEnd() != nil {
			t.out.complete()
		}
		return send(e)
	}))
}

func (t *target) cwd(c *process.ProcessConfig) string {
	if c.GetCwd() == "" {
		return t.dir()
	}
	return t.path(c.GetCwd())
}

// startError puts why a program could not be started in these clients' words.
func (p *processes) startError(ctx context.Context, t *target, cwd string, err error) error {
	if sandbox.KindOf(err) != sandbox.NotFound || noUser(err) {
		return t.userError(err)
	}
	if fi, serr := p.engine.Stat(ctx, t.id, cwd, true); sandbox.KindOf(serr) == sandbox.NotFound || serr == nil && fi.Type != sandbox.TypeDir {
		return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("cwd '%s' does not exist", printable(cwd)))
	}
	return connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("error starting process: %w", err))
}

// Connect follows what a process does from now on.
func (p *processes) Connect(ctx context.Context, r *connect.Request[process.ConnectRequest], stream *connect.ServerStream[process.ConnectResponse]) error {
	t := targetOf(ctx)
	one, err := p.find(ctx, t, r.Msg.Process)
	if err != nil {
		return p.rpcError(err)
	}
	send := func(e *process.ProcessEvent) error { return stream.Send(&process.ConnectResponse{Event: e}) }
	ping := pingEvery(r.Header())
	if one.terminal != "" {
		events, err := p.engine.AttachTerminal(ctx, t.id, one.terminal, sandbox.TerminalAttach{Resume: true, Offset: one.offset})
		if err != nil {
			return p.rpcError(err)
		}
		return p.rpcError(relayTerminal(ctx, events, ping, send))
	}
	events, err := p.engine.Attach(ctx, t.id, one.process, one.written)
	if err != nil {
		return p.rpcError(err)
	}
	return p.rpcError(relay(ctx, events, ping, send))
}

// Update gives a terminal another size.
func (p *processes) Update(ctx context.Context, r *connect.Request[process.UpdateRequest]) (*connect.Response[process.UpdateResponse], error) {
	t := targetOf(ctx)
	one, err := p.find(ctx, t, r.Msg.Process)
	if err != nil {
		return nil, p.rpcError(err)
	}
	size := r.Msg.GetPty().GetSize()
	if one.terminal == "" || size == nil {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("tty not assigned to process"))
	}
	if err := p.engine.ResizeTerminal(ctx, t.id, one.terminal, int(size.Cols), int(size.Rows)); err != nil {
		return nil, p.rpcError(err)
	}
	return connect.NewResponse(&process.UpdateResponse{}), nil
}

// SendInput writes to a process's standard input, or types into its terminal.
func (p *processes) SendInput(ctx context.Context, r *connect.Request[process.SendInputRequest]) (*connect.Response[process.SendInputResponse], error) {
	t := targetOf(ctx)
	one, err := p.find(ctx, t, r.Msg.Process)
	if err == nil {
		err = p.input(ctx, t, one, r.Msg.Input)
	}
	if err != nil {
		return nil, p.rpcError(err)
	}
	return connect.NewResponse(&process.SendInputResponse{}), nil
}

func (p *processes) input(ctx context.Context, t *target, one found, in *process.ProcessInput) error {
	switch in := in.GetInput().(type) {
	case *process.ProcessInput_Stdin:
		if one.terminal != "" {
			return connect.NewError(connect.CodeFailedPrecondition, errors.New("the process has a terminal: its input goes there"))
		}
		err := p.engine.Input(ctx, t.id, one.process, bytes.NewReader(in.Stdin))
		if sandbox.KindOf(err) == sandbox.Conflict { // closed, or never open
			return connect.NewError(connect.CodeInternal, fmt.Errorf("error writing to stdin: %w", err))
		}
		return err
	case *process.ProcessInput_Pty:
		if one.terminal == "" {
			return connect.NewError(connect.CodeFailedPrecondition, errors.New("tty not assigned to process"))
		}
		return p.engine.TerminalInput(ctx, t.id, one.terminal, bytes.NewReader(in.Pty))
	}
	return connect.NewError(connect.CodeUnimplemented, errors.New("invalid input type"))
}

// StreamInput writes a stream of inputs to one process.
func (p *processes) StreamInput(ctx context.Context, stream *connect.ClientStream[process.StreamInputRequest]) (*connect.Response[process.StreamInputResponse], error) {
	t := targetOf(ctx)
	var one found
	for begun := false; stream.Receive(); {
		var err error
		switch e := stream.Msg().GetEvent().(type) {
		case *process.StreamInputRequest_Start:
			one, err = p.find(ctx, t, e.Start.Process)
			begun = true
		case *process.StreamInputRequest_Data:
			if !begun {
				return nil, connect.NewError(connect.CodeInvalidArgument, errors.New("the first message is a start"))
			}
			err = p.input(ctx, t, one, e.Data.Input)
		}
		if err != nil {
			return nil, p.rpcError(err)
		}
	}
	if err := stream.Err(); err != nil {
		return nil, p.rpcError(err)
	}
	return connect.NewResponse(&process.StreamInputResponse{}), nil
}

// SendSignal sends SIGKILL or SIGTERM.
func (p *processes) SendSignal(ctx context.Context, r *connect.Request[process.SendSignalRequest]) (*connect.Response[process.SendSignalResponse], error) {
	t := targetOf(ctx)
	one, err := p.find(ctx, t, r.Msg.Process)
	if err != nil {
		return nil, p.rpcError(err)
	}
	if r.Msg.Signal == process.Signal_SIGNAL_UNSPECIFIED {
		return nil, connect.NewError(connect.CodeUnimplemented, errors.New("invalid signal: SIGKILL and SIGTERM are sent"))
	}
	name := unix.SignalName(syscall.Signal(r.Msg.Signal))
	if one.terminal != "" {
		err = p.engine.SignalTerminal(ctx, t.id, one.terminal, name)
	} else {
		err = p.engine.Signal(ctx, t.id, one.process, name)
	}
	if sandbox.KindOf(err) == sandbox.Conflict { // it has ended meanwhile
		err = noProcess(r.Msg.Process)
	}
	if err != nil {
		return nil, p.rpcError(err)
	}
	return connect.NewResponse(&process.SendSignalResponse{}), nil
}

// CloseStdin ends a process's standard input; a second time it does nothing.
func (p *processes) CloseStdin(ctx context.Context, r *connect.Request[process.CloseStdinRequest]) (*connect.Response[process.CloseStdinResponse], error) {
	t := targetOf(ctx)
	one, err := p.find(ctx, t, r.Msg.Process)
	if err != nil {
		return nil, p.rpcError(err)
	}
	if one.terminal != "" {
		return nil, connect.NewError(connect.CodeFailedPrecondition, errors.New("a terminal has no stdin to close: send Ctrl+D"))
	}
	if err := p.engine.CloseInput(ctx, t.id, one.process); err != nil && sandbox.KindOf(err) != sandbox.Conflict {
		return nil, p.rpcError(err)
	}
	return connect.NewResponse(&process.CloseStdinResponse{}), nil
}

// found is what a selector names: a process or a terminal.
type found struct {
	process, terminal string
	pid               int
	written           sandbox.Offsets
	offset            int64 // of the terminal
}

// find looks a selector up. Of several that had a number the newest counts.
func (p *processes) find(ctx context.Context, t *target, s *process.ProcessSelector) (f found, err error) {
	pid, tag := int(s.GetPid()), s.GetTag()
	all, err := p.engine.Processes(ctx, t.id)
	if err != nil {
		return f, err
	}
	for _, one := range all {
		if (tag == "" && one.PID == pid || tag != "" && one.Name == tag) && !one.Terminal && (f.process == "" || one.Exit == nil) {
			f = found{process: one.ID, pid: one.PID, written: one.Written}
		}
	}
	if f.process != "" {
		return f, nil
	}
	if tag != "" {
		return f, noProcess(s)
	}
	terms, err := p.engine.Terminals(ctx, t.id)
	if err != nil {
		return f, err
	}
	for _, one := range terms {
		if one.PID == pid {
			return found{terminal: one.ID, pid: pid, offset: one.Offset}, nil
		}
	}
	return f, noProcess(s)
}

func noProcess(s *process.ProcessSelector) error {
	if tag := s.GetTag(); tag != "" {
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with tag %s not found", printable(tag)))
	}
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("process with pid %d not found", s.GetPid()))
}

// pingEvery is how often a stream says that it lives.
func pingEvery(h http.Header) time.Duration {
	if n, err := strconv.Atoi(h.Get("Keepalive-Ping-Interval")); err == nil && n > 0 && n < 3600 {
		return time.Duration(n) * time.Second
	}
	return 90 * time.Second
}

// relay sends a process's events until its end. Only the end of the process, or
// of the request, ends it.
func relay(ctx context.Context, events sandbox.Events, ping time.Duration, send func(*process.ProcessEvent) error) error {
	return pump(ctx, events.Recv, events.Close, ping, func(e sandbox.Event) (bool, error) {
		switch {
		case e.Started != nil:
			return false, send(started(e.Started.PID))
		case e.Exit != nil && e.Exit.TimedOut:
			return true, connect.NewError(connect.CodeDeadlineExceeded, context.DeadlineExceeded)
		case e.Exit != nil:
			return true, send(ended(e.Exit))
		case len(e.Data) > 0 && e.Stream == sandbox.Stderr:
			return false, send(output(&process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stderr{Stderr: e.Data}}))
		case len(e.Data) > 0:
			return false, send(output(&process.ProcessEvent_DataEvent{Output: &process.ProcessEvent_DataEvent_Stdout{Stdout: e.Data}}))
		}
		return false, nil
	}, func() error { return send(alive()) })
}

// pump hands what recv gives to take, until that has had the last one, and calls
// idle when nothing came for a while. It ends what it reads.
func pump[T any](ctx context.Context, recv func() (T, error), leave func() error, every time.Duration, take func(T) (last bool, err error), idle func() error) (err error) {
	type item struct {
		one T
		err error
	}
	items, over := make(chan item), make(chan struct{})
	go func() {
		for {
			one, err := recv()
			select {
			case items <- item{one, err}:
			case <-over:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() {
		cerr := leave()
		if err == nil {
			err = cerr
		}
	}()
	defer close(over)
	bell := time.NewTimer(every)
	defer bell.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-bell.C:
			if err := idle(); err != nil {
				return err
			}
		case i := <-items:
			if i.err == io.EOF {
				return nil
			}
			if i.err != nil {
				return i.err
			}
			if last, err := take(i.one); err != nil || last {
				return err
			}
		}
		bell.Reset(every)
	}
}

func started(pid int) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Start{Start: &process.ProcessEvent_StartEvent{Pid: uint32(pid)}}}
}

func output(d *process.ProcessEvent_DataEvent) *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Data{Data: d}}
}

func alive() *process.ProcessEvent {
	return &process.ProcessEvent{Event: &process.ProcessEvent_Keepalive{Keepalive: &process.ProcessEvent_KeepAlive{}}}
}

// ended is an exit in the words of Go's package os, which these clients know.
func ended(x *sandbox.Exit) *process.ProcessEvent {
	e := &process.ProcessEvent_EndEvent{ExitCode: int32(x.Code), Exited: true, Status: fmt.Sprintf("exit status %d", x.Code)}
	if x.Signal != "" {
		e.ExitCode, e.Exited = -1, false
		e.Status = "signal: " + unix.SignalNum(x.Signal).String()
	}
	if x.Signal != "" || x.Code != 0 {
		e.Error = &e.Status
	}
	return &process.ProcessEvent{Event: &process.ProcessEvent_End{End: e}}
}
