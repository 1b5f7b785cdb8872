package cloudflare

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/tunnel"
)

const (
	typedPart  = 32 << 10 // bytes that are typed at once
	typedParts = 64       // that wait to be typed; then the client's messages wait
	maxControl = 4 << 10  // bytes of a text message
	maxScreen  = 4 << 20  // bytes that draw a screen
)

// notice is what the server says beside a terminal's output.
type notice struct {
	Type    string `json:"type"` // "ready", "exit" or "error"
	Code    *int   `json:"code,omitempty"`
	Signal  string `json:"signal,omitempty"`
	Message string `json:"message,omitempty"`
}

// control is what a client says beside its input.
type control struct {
	Type string `json:"type"` // "resize"
	Cols int    `json:"cols"`
	Rows int    `json:"rows"`
}

// serveTerminal joins a WebSocket to the terminal of a session, which is made if
// need be and outlives it.
func (s *Server) serveTerminal(w http.ResponseWriter, r *http.Request) error {
	b, q := boxOf(r.Context()), r.URL.Query()
	if err := checkID("session", q.Get("sessionId")); err != nil {
		return err
	}
	cols, rows, err := size(q.Get("cols"), q.Get("rows"))
	if err != nil {
		return err
	}
	if r.Header.Get("Upgrade") == "" {
		return &fault{code: validationFailed, status: http.StatusUpgradeRequired, text: "terminals take WebSockets alone"}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	name, err := b.terminal(ctx, q.Get("sessionId"), q.Get("shell"), cols, rows)
	if err != nil {
		return err
	}
	events, err := b.engine.AttachTerminal(ctx, b.id, name, sandbox.TerminalAttach{Cols: cols, Rows: rows})
	if err != nil {
		return err
	}
	defer events.Close()
	conn, err := accept(w, r)
	if conn == nil {
		return err
	}
	defer conn.CloseNow()
	j := &junction{box: b, conn: conn, name: name, typed: make(chan []byte, typedParts)}
	j.run(ctx, cancel, events)
	return nil
}

// size reads a terminal's size; none is 0, for the terminal's own.
func size(cols, rows string) (c, r int, err error) {
	if cols == "" && rows == "" {
		return 0, 0, nil
	}
	c, cerr := strconv.Atoi(orElse(cols, "80"))
	r, rerr := strconv.Atoi(orElse(rows, "24"))
	if err := errors.Join(cerr, rerr); err != nil {
		return 0, 0, invalid("cols and rows must be numbers")
	}
	return c, r, sandbox.CheckTerminalSize(c, r)
}

// terminal makes the terminal of a session if it does not live, and returns its
// name. It begins as the session's shell is.
func (b *box) terminal(ctx context.Context, session, shell string, cols, rows int) (string, error) {
	name := b.names.of(session)
	all, err := b.engine.Terminals(ctx, b.id)
	if err != nil {
		return "", err
	}
	for _, t := range all {
		if t.Name == name && t.Exit == nil {
			return name, nil
		}
	}
	req := sandbox.TerminalRequest{Name: name, User: user, Cols: cols, Rows: rows, Cwd: defaultDir, Env: map[string]string{"TERM": "xterm-256color"}}
	c := resumption{second: session, command: "builtin exec -- " + quote(orElse(shell, "bash"))}
	if hasState(session) {
		if err := b.describeTo(ctx, &c, session, req.Env); err != nil {
			return "", err
		}
	}
	req.Argv, req.Env = c.argv(), c.environ(req.Env)
	_, _, err = b.engine.OpenTerminal(ctx, b.id, req)
	if noFolder(err) {
		req.Cwd = fallbackDir
		_, _, err = b.engine.OpenTerminal(ctx, b.id, req)
	}
	return name, err
}

// junction joins a WebSocket to a terminal.
type junction struct {
	*box
	conn  *websocket.Conn
	name  string
	typed chan []byte
}

// run lasts until either side ends.
func (j *junction) run(ctx context.Context, cancel context.CancelCauseFunc, events sandbox.TerminalEvents) {
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	all.Go(func() { cancel(j.listen(ctx)) })
	all.Go(func() { cancel(alive(ctx, j.conn)) })
	all.Go(func() {
		err := j.engine.TerminalInput(ctx, j.id, j.name, tunnel.Messages(ctx, j.typed))
		if kind := sandbox.KindOf(err); kind != sandbox.Conflict && kind != sandbox.NotFound && ctx.Err() == nil {
			cancel(err) // otherwise it has ended, and its exit is coming
		}
	})
	stop := context.AfterFunc(ctx, func() { _ = events.Close() })
	defer stop()
	err := j.show(events)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	switch {
	case err == nil:
		_ = j.conn.Close(websocket.StatusNormalClosure, "")
	case errors.Is(err, errGone):
	default:
		_ = j.say(notice{Type: "error", Message: j.bodyOf(err).Message})
		_ = j.conn.Close(websocket.StatusInternalError, "")
	}
	_ = j.conn.CloseNow() // wakes listen
}

// show sends what was on the screen as one message, says that it is ready, and then
// sends what the terminal prints.
func (j *junction) show(events sandbox.TerminalEvents) error {
	var screen []byte
	var left int64
	seeded, ready := false, false
	for {
		e, err := events.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch {
		case e.Seed != nil && !ready && e.Seed.Bytes <= maxScreen:
			seeded, left = true, e.Seed.Bytes
		case len(e.Data) > 0 && e.Seeding && seeded && !ready:
			screen, left = append(screen, e.Data...), left-int64(len(e.Data))
		}
		if !ready && seeded && left <= 0 {
			if err := j.begin(screen); err != nil {
				return err
			}
			ready, screen = true, nil
			continue
		}
		if err := j.pass(e, ready || !seeded); err != nil {
			return err
		}
	}
}

// begin sends the screen, and that all is ready.
func (j *junction) begin(screen []byte) error {
	if len(screen) > 0 {
		if err := j.write(websocket.MessageBinary, screen); err != nil {
			return err
		}
	}
	return j.say(notice{Type: "ready"})
}

// pass sends one event on.
func (j *junction) pass(e sandbox.TerminalEvent, ready bool) error {
	switch {
	case e.Exit != nil:
		return j.say(notice{Type: "exit", Code: &e.Exit.Code, Signal: e.Exit.Signal})
	case len(e.Data) > 0 && ready:
		return j.write(websocket.MessageBinary, e.Data)
	}
	return nil
}

func (j *junction) say(n notice) error {
	b, err := json.Marshal(n)
	if err != nil {
		return sandbox.Errorf("encode notice", sandbox.Internal, "%w", err)
	}
	return j.write(websocket.MessageText, b)
}

func (j *junction) write(kind websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	if j.conn.Write(ctx, kind, b) != nil {
		return errGone
	}
	return nil
}

// listen takes the client's messages until it goes.
func (j *junction) listen(ctx context.Context) error {
	for {
		kind, b, err := j.conn.Read(context.Background()) // ends with the connection
		if err != nil {
			return errGone
		}
		if kind == websocket.MessageText {
			if err := j.obey(ctx, b); err != nil {
				return err
			}
			continue
		}
		for len(b) > 0 {
			n := min(len(b), typedPart)
			select {
			case j.typed <- b[:n]:
			case <-ctx.Done():
				return nil
			}
			b = b[n:]
		}
	}
}

// obey does what a text message says; others than those known say nothing.
func (j *junction) obey(ctx context.Context, b []byte) error {
	var c control
	if len(b) > maxControl || json.Unmarshal(b, &c) != nil || c.Type != "resize" {
		return nil
	}
	err := sandbox.CheckTerminalSize(c.Cols, c.Rows)
	if err == nil {
		err = j.engine.ResizeTerminal(ctx, j.id, j.name, c.Cols, c.Rows)
	}
	switch sandbox.KindOf(err) {
	case "", sandbox.Conflict, sandbox.NotFound: // it has ended, and its exit is coming
		return nil
	case sandbox.Invalid:
		return j.say(notice{Type: "error", Message: err.Error()})
	}
	return err
}
