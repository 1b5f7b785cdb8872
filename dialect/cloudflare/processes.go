package cloudflare

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// startProcess starts a process that lives on by itself.
func (b *box) startProcess(ctx context.Context, r startRequest) (any, error) {
	x := executeRequest{Command: r.Command, TimeoutMs: r.TimeoutMs, Env: r.Env}
	limit, err := x.check()
	if err != nil {
		return nil, err
	}
	id := r.ProcessID
	if id == "" {
		var some [4]byte
		_, _ = rand.Read(some[:]) // never fails
		id = fmt.Sprintf("proc_%d_%s", time.Now().UnixMilli(), hex.EncodeToString(some[:]))
	}
	if err := checkID("process", id); err != nil {
		return nil, err
	}
	events, err := b.start(ctx, task{command: r.Command, session: r.SessionID, cwd: r.Cwd, env: r.Env, timeout: limit,
		id: id, detach: true})
	if err != nil {
		return nil, x.fault(err)
	}
	first, err := events.Recv()
	if cerr := events.Close(); err == nil {
		err = cerr
	}
	switch {
	case err != nil:
		return nil, x.fault(err)
	case first.Started == nil:
		return nil, sandbox.Errorf("start process", sandbox.Internal, "the first event is not the start")
	}
	return startResult{Success: true, ProcessID: id, PID: first.Started.PID, Command: r.Command, Timestamp: now()}, nil
}

// describe is a process as these clients see it; false if it is none of theirs.
func (b *box) describe(p sandbox.Process) (processInfo, bool) {
	id, ok := b.names.id(p.Name)
	if !ok || p.Terminal || p.Session != "" {
		return processInfo{}, false
	}
	i := processInfo{ID: id, PID: p.PID, Status: "running", StartTime: stamp(p.Started)}
	if len(p.Argv) > argCommand {
		i.ID, i.SessionID, i.Command = p.Argv[argFirst], p.Argv[argSecond], p.Argv[argCommand]
	}
	if p.Exit == nil {
		return i, true
	}
	code := exitCode(*p.Exit)
	i.EndTime, i.ExitCode = stamp(p.Ended), &code
	switch {
	case p.Exit.Error != "":
		i.Status = "error"
	case p.Exit.TimedOut, p.Exit.Code == 143, p.Exit.Code == 137:
		i.Status = "killed"
	case code == 0:
		i.Status = "completed"
	default:
		i.Status = "failed"
	}
	return i, true
}

// processes lists what was started here: of several that had an id, the newest.
func (b *box) processes(ctx context.Context) (all []sandbox.Process, infos []processInfo, err error) {
	every, err := b.engine.Processes(ctx, b.id)
	if err != nil {
		return nil, nil, err
	}
	at := map[string]int{}
	for _, p := range every {
		i, ok := b.describe(p)
		if !ok {
			continue
		}
		if n, again := at[i.ID]; again {
			if !p.Started.Before(all[n].Started) {
				all[n], infos[n] = p, i
			}
			continue
		}
		at[i.ID] = len(all)
		all, infos = append(all, p), append(infos, i)
	}
	return all, infos, nil
}

// find is the process of an id.
func (b *box) find(ctx context.Context, id string) (sandbox.Process, processInfo, error) {
	all, infos, err := b.processes(ctx)
	if err != nil {
		return sandbox.Process{}, processInfo{}, err
	}
	for n := range all {
		if infos[n].ID == id {
			return all[n], infos[n], nil
		}
	}
	return sandbox.Process{}, processInfo{}, &fault{code: processNotFound, text: "Process not found: " + bounded(id), context: map[string]any{"processId": bounded(id)}}
}

func (b *box) listProcesses(ctx context.Context) (any, error) {
	_, infos, err := b.processes(ctx)
	if infos == nil {
		infos = []processInfo{}
	}
	return processList{Success: true, Processes: infos, Timestamp: now()}, err
}

func (b *box) getProcess(ctx context.Context, id string) (any, error) {
	_, info, err := b.find(ctx, id)
	return processAnswer{Success: true, Process: info, Timestamp: now()}, err
}

// killDelay is how long a process has to end by itself.
const killDelay = 5 * time.Second

// killProcess ends a process with all that it started.
func (b *box) killProcess(ctx context.Context, id string) (any, error) {
	p, _, err := b.find(ctx, id)
	if err == nil {
		err = b.end(ctx, p)
	}
	return processKilled{Success: true, ProcessID: id, Timestamp: now()}, err
}

func (b *box) killAll(ctx context.Context) (any, error) {
	n, err := b.endThose(ctx, func(processInfo) bool { return true })
	return processesKilled{Success: true, CleanedCount: n, Timestamp: now()}, err
}

// endThose ends the living processes that which selects, all at once.
func (b *box) endThose(ctx context.Context, which func(processInfo) bool) (n int, err error) {
	all, infos, err := b.processes(ctx)
	if err != nil {
		return 0, err
	}
	ends := make(chan error, len(all))
	for i, p := range all {
		if p.Exit == nil && which(infos[i]) {
			n++
			go func() { ends <- b.end(ctx, p) }()
		}
	}
	for range n {
		if e := <-ends; err == nil {
			err = e
		}
	}
	return n, err
}

// end asks a process tree to end and, if it does not, ends it. It returns when the
// process has ended.
func (b *box) end(ctx context.Context, p sandbox.Process) error {
	if p.Exit != nil {
		return nil
	}
	events, err := b.engine.Attach(ctx, b.id, p.ID, p.Written)
	if err != nil {
		return err
	}
	if err := b.signal(ctx, p, "SIGTERM"); err != nil {
		_ = events.Close()
		return err
	}
	var kerr error
	late := make(chan struct{})
	bell := time.AfterFunc(killDelay, func() {
		defer close(late)
		kerr = b.signal(ctx, p, "SIGKILL")
	})
	err = follow(ctx, events, func(sandbox.Event) error { return nil })
	if !bell.Stop() {
		<-late
		if err == nil {
			err = kerr
		}
	}
	return err
}

// signal sends a signal to a process tree; one that has ended needs none.
func (b *box) signal(ctx context.Context, p sandbox.Process, signal string) error {
	err := b.engine.Signal(ctx, b.id, p.ID, signal)
	if kind := sandbox.KindOf(err); kind == sandbox.Conflict || kind == sandbox.NotFound {
		return nil
	}
	return err
}

// processLogs gives what a process has written so far.
func (b *box) processLogs(ctx context.Context, id string) (any, error) {
	p, _, err := b.find(ctx, id)
	if err != nil {
		return nil, err
	}
	var out, errs []byte
	err = b.written(ctx, p, func(e sandbox.Event) error {
		if e.Stream == sandbox.Stderr {
			errs = append(errs, e.Data...)
		} else {
			out = append(out, e.Data...)
		}
		return nil
	})
	return processLogs{Success: true, ProcessID: id, Stdout: valid(out), Stderr: valid(errs), Timestamp: now()}, err
}

// written gives what a process had written when p was made, as far as it is kept.
func (b *box) written(ctx context.Context, p sandbox.Process, take func(sandbox.Event) error) error {
	left := p.Written
	if left.Stdout == 0 && left.Stderr == 0 {
		return nil
	}
	events, err := b.engine.Attach(ctx, b.id, p.ID, sandbox.Offsets{})
	if err != nil {
		return err
	}
	err = follow(ctx, events, func(e sandbox.Event) error {
		at := &left.Stdout
		if e.Stream == sandbox.Stderr {
			at = &left.Stderr
		}
		*at -= int64(len(e.Data)) + e.Missed
		if len(e.Data) > 0 {
			if err := take(e); err != nil {
				return err
			}
		}
		if left.Stdout <= 0 && left.Stderr <= 0 {
			return errEnough
		}
		return nil
	})
	if err == errEnough {
		return nil
	}
	return err
}

// errEnough ends a stream that has given all that was wanted.
var errEnough = sandbox.Errorf("read output", sandbox.Internal, "that was all")

// processEvents tells what a process has written, and then what it does.
func (b *box) processEvents(ctx context.Context, id string, out stream) error {
	p, info, err := b.find(ctx, id)
	if err != nil {
		return err
	}
	events, err := b.engine.Attach(ctx, b.id, p.ID, sandbox.Offsets{})
	if err != nil {
		return err
	}
	begin := processEvent{Type: "process_info", ProcessID: id, Command: info.Command, Status: info.Status, Timestamp: now()}
	if err := out.send("process_info", begin); err != nil {
		_ = events.Close()
		return err
	}
	t := newText()
	return follow(ctx, events, func(e sandbox.Event) error {
		switch {
		case e.Exit != nil && e.Exit.Error != "":
			return out.send("error", errorEvent{Type: "error", Error: e.Exit.Error, Timestamp: now(), ProcessID: id})
		case e.Exit != nil:
			if err := t.rest(func(s sandbox.Stream, data string) error { return out.send(string(s), dataOf(s, data, id)) }); err != nil {
				return err
			}
			code := exitCode(*e.Exit)
			return out.send("exit", processEvent{Type: "exit", ProcessID: id, ExitCode: &code,
				Data: fmt.Sprintf("Process exited with code %d", code), Timestamp: now()})
		}
		if data := t.take(e.Stream, e.Data); data != "" {
			return out.send(string(e.Stream), dataOf(e.Stream, data, id))
		}
		return nil
	})
}
