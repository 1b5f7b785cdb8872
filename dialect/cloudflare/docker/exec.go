package docker

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// maxExecs bounds the commands that are known; the oldest that has ended goes first.
const maxExecs = 1024

// execution is one command of exec.
type execution struct {
	id        string
	container string
	body      execBody

	mu       sync.Mutex
	begun    bool
	over     bool
	code     int
	pid      int
	terminal string // its id, if it has one
	box      sandbox.ID
	made     time.Time
}

// createExec notes a command, which start then runs.
func (d *Dialect) createExec(w http.ResponseWriter, r *http.Request) error {
	var b execBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	c, err := d.asked(r)
	if err != nil {
		return err
	}
	if c.Phase != running {
		return notRunning(c.Name)
	}
	if len(b.Cmd) == 0 {
		return invalid("Cmd is empty")
	}
	if _, err := environment(b.Env); err != nil {
		return err
	}
	x := &execution{id: hexID("exec", string(sandbox.NewID()), string(sandbox.NewID())), container: c.Name, body: b, box: c.box.ID, made: time.Now()}
	if err := d.addExec(x); err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, map[string]string{"Id": x.id})
	return nil
}

func (d *Dialect) addExec(x *execution) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.execs) >= maxExecs {
		var oldest *execution
		for _, o := range d.execs {
			o.mu.Lock()
			idle := o.over || !o.begun
			o.mu.Unlock()
			if idle && (oldest == nil || o.made.Before(oldest.made)) {
				oldest = o
			}
		}
		if oldest == nil {
			return sandbox.Errorf("exec", sandbox.Exhausted, "%d commands run", maxExecs)
		}
		delete(d.execs, oldest.id)
	}
	d.execs[x.id] = x
	return nil
}

func (d *Dialect) exec(r *http.Request) (*execution, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if x := d.execs[r.PathValue("exec")]; x != nil {
		return x, nil
	}
	return nil, sandbox.Errorf("find exec", sandbox.NotFound, "No such exec instance: %.80s", r.PathValue("exec"))
}

func (d *Dialect) inspectExec(w http.ResponseWriter, r *http.Request) error {
	x, err := d.exec(r)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	b := execInspectBody{ID: x.id, Running: x.begun && !x.over, Pid: x.pid, ContainerID: hexID("container", string(x.box))}
	if x.over {
		b.ExitCode = &x.code
	}
	writeJSON(w, http.StatusOK, b)
	return nil
}

func (d *Dialect) resizeExec(w http.ResponseWriter, r *http.Request) error {
	x, err := d.exec(r)
	if err != nil {
		return err
	}
	rows, err1 := strconv.Atoi(r.URL.Query().Get("h"))
	cols, err2 := strconv.Atoi(r.URL.Query().Get("w"))
	if err := errors.Join(err1, err2); err != nil {
		return invalid("h and w say how large: %v", err)
	}
	x.mu.Lock()
	terminal := x.terminal
	x.mu.Unlock()
	if terminal == "" {
		return sandbox.Errorf("resize", sandbox.Conflict, "it has no terminal")
	}
	if err := d.engine.ResizeTerminal(r.Context(), string(x.box), terminal, cols, rows); err != nil {
		return err
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// startExec runs a command once, and carries what it reads and writes.
func (d *Dialect) startExec(w http.ResponseWriter, r *http.Request) error {
	x, err := d.exec(r)
	if err != nil {
		return err
	}
	var b execStartBody
	if err := readBody(w, r, &b); err != nil {
		return err
	}
	x.mu.Lock()
	again := x.begun
	x.begun = true
	x.mu.Unlock()
	if again {
		return sandbox.Errorf("start exec", sandbox.Conflict, "the command has been started")
	}
	run := d.pipes
	if x.body.Tty {
		run = d.terminal
	}
	if b.Detach {
		ready := make(chan error, 1)
		d.task(func() {
			run(d.ctx, x, func(err error) (io.ReadWriteCloser, error) { ready <- err; return nowhere{}, nil })
		})
		if err := <-ready; err != nil {
			return err
		}
		w.WriteHeader(http.StatusOK)
		return nil
	}
	// Not the request's context: that ends with the client's input.
	var failed error
	run(d.ctx, x, func(err error) (io.ReadWriteCloser, error) {
		if failed = err; err != nil {
			return nil, err
		}
		return upgrade(w, r, x.body.Tty)
	})
	return failed
}

// nowhere takes what a command writes whose maker does not read it.
type nowhere struct{}

func (nowhere) Read([]byte) (int, error)    { return 0, io.EOF }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) Close() error                { return nil }

// upgrade turns a request into a stream of bytes.
func upgrade(w http.ResponseWriter, r *http.Request, tty bool) (io.ReadWriteCloser, error) {
	raw, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, sandbox.Errorf("take the connection over", sandbox.Internal, "%w", err)
	}
	_ = raw.SetDeadline(time.Time{})
	kind := "application/vnd.docker.multiplexed-stream"
	if tty {
		kind = "application/vnd.docker.raw-stream"
	}
	head := "HTTP/1.1 200 OK\r\nContent-Type: " + kind + "\r\n\r\n"
	if r.Header.Get("Upgrade") != "" {
		head = "HTTP/1.1 101 UPGRADED\r\nContent-Type: " + kind + "\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
	}
	if _, err := io.WriteString(raw, head); err != nil {
		raw.Close()
		return nil, http.ErrAbortHandler
	}
	return &early{Conn: raw, r: buffered.Reader}, nil
}

// pipes runs a command without a terminal. open is told whether it has started, and
// gives the stream.
func (d *Dialect) pipes(ctx context.Context, x *execution, open func(error) (io.ReadWriteCloser, error)) {
	env, _ := environment(x.body.Env) // it was looked at before
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := d.engine.Exec(ctx, string(x.box), sandbox.Command{
		Argv: x.body.Cmd, Env: env, Cwd: x.body.WorkingDir, User: x.body.User, Stdin: x.body.AttachStdin, Lossless: true,
	})
	var first sandbox.Event
	if err == nil {
		defer events.Close()
		if first, err = events.Recv(); err == nil && first.Started == nil {
			err = sandbox.Errorf("start exec", sandbox.Internal, "the first event is not the start")
		}
	}
	if err != nil {
		x.end(126)
		_, _ = open(err)
		return
	}
	x.started(first.Started.PID)
	stream, err := open(nil)
	if err != nil {
		x.end(killed)
		return
	}
	defer stream.Close()
	if x.body.AttachStdin {
		process := first.Started.ID
		d.task(func() { d.feed(ctx, x.box, process, stream) })
	}
	code := killed
	for {
		ev, err := events.Recv()
		if err != nil {
			break
		}
		if ev.Exit != nil {
			code = ev.Exit.Code
		}
		if len(ev.Data) > 0 && x.wants(ev.Stream) {
			if err := frame(stream, ev.Stream, ev.Data); err != nil {
				break
			}
		}
	}
	x.end(code)
}

// feed passes a client's bytes to a command's input, to their end.
func (d *Dialect) feed(ctx context.Context, box sandbox.ID, process string, from io.Reader) {
	err := d.engine.Input(ctx, string(box), process, from)
	if err == nil {
		err = d.engine.CloseInput(ctx, string(box), process)
	}
	if err != nil && ctx.Err() == nil {
		d.log.Debug("a command's input ended", "sandbox", box, "error", err)
	}
}

func (x *execution) wants(s sandbox.Stream) bool {
	if s == sandbox.Stderr {
		return x.body.AttachStderr
	}
	return x.body.AttachStdout
}

// frame writes bytes behind the header that tells their stream and length.
func frame(w io.Writer, s sandbox.Stream, data []byte) error {
	head := [8]byte{1}
	if s == sandbox.Stderr {
		head[0] = 2
	}
	binary.BigEndian.PutUint32(head[4:], uint32(len(data)))
	_, err := (&net.Buffers{head[:], data}).WriteTo(w)
	return err
}

func (x *execution) started(pid int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.pid = pid
}

func (x *execution) end(code int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.over, x.code = true, code
}

// terminal runs a command on a terminal.
func (d *Dialect) terminal(ctx context.Context, x *execution, open func(error) (io.ReadWriteCloser, error)) {
	env, _ := environment(x.body.Env)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t, _, err := d.engine.OpenTerminal(ctx, string(x.box), sandbox.TerminalRequest{
		Name: "exec-" + x.id[:32], New: true, Argv: x.body.Cmd, Env: env, Cwd: x.body.WorkingDir, User: x.body.User,
	})
	var events sandbox.TerminalEvents
	if err == nil {
		events, err = d.engine.AttachTerminal(ctx, string(x.box), t.ID, sandbox.TerminalAttach{Resume: true})
	}
	if err != nil {
		x.end(126)
		_, _ = open(err)
		return
	}
	defer events.Close()
	x.mu.Lock()
	x.terminal, x.pid = t.ID, t.PID
	x.mu.Unlock()
	stream, err := open(nil)
	if err != nil {
		x.end(killed)
		return
	}
	defer stream.Close()
	if x.body.AttachStdin {
		d.task(func() {
			if err := d.engine.TerminalInput(ctx, string(x.box), t.ID, stream); err != nil && ctx.Err() == nil {
				d.log.Debug("a terminal's input ended", "sandbox", x.box, "error", err)
			}
		})
	}
	code := killed
	for {
		ev, err := events.Recv()
		if err != nil {
			break
		}
		if ev.Exit != nil {
			code = ev.Exit.Code
		}
		if len(ev.Data) > 0 {
			if _, err := stream.Write(ev.Data); err != nil {
				break
			}
		}
	}
	x.end(code)
}
