package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
	"github.com/berth-dev/berth/tunnel"
)

const (
	pingEvery   = 15 * time.Second
	pongTime    = 30 * time.Second // for a client to say that it lives
	typedPart   = 32 << 10         // bytes
	typedParts  = 16               // that wait to be typed; then the client's messages wait
	partingTime = time.Second      // to take a last word
)

// joinTerminal opens the terminal if need be, attaches to it, and only then
// takes the WebSocket: until then an error is an answer as any other.
func (a *API) joinTerminal(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := a.untilClose(r)
	defer cancel()
	id, key := r.PathValue("id"), r.PathValue("terminal")
	q := queryOf(r)
	req := sandbox.TerminalRequest{Name: key, New: q.boolean("new"), Shell: q.text("command"), Cwd: q.text("cwd"), User: q.text("user"),
		Cols: int(q.number("cols", 10, 31)), Rows: int(q.number("rows", 10, 31)), Env: q.prefixed("env.")}
	for name := range req.Env {
		q.known = append(q.known, "env."+name)
	}
	create := q.text("create") != "false" && !q.values.Has("offset") && !sandbox.IsTerminalID(key)
	at := sandbox.TerminalAttach{Resume: q.values.Has("offset"), Offset: q.number("offset", 10, 64), Cols: req.Cols, Rows: req.Rows}
	if err := q.check(); err != nil {
		return err
	}
	if create {
		t, _, err := a.engine.OpenTerminal(ctx, id, req)
		if err != nil {
			return because(ctx, err)
		}
		key = t.ID
	}
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	events, err := a.engine.AttachTerminal(ctx, id, key, at)
	if err != nil {
		return because(ctx, err)
	}
	defer events.Close()
	first, err := events.Recv()
	if err != nil {
		return because(ctx, err)
	}
	if first.Attached == nil {
		return sandbox.Errorf("attach to terminal", sandbox.Internal, "the first event is not the attachment")
	}
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{wire.TerminalProtocol}})
	if err != nil {
		return nil // Accept has answered
	}
	defer conn.CloseNow()
	j := &junction{a: a, conn: conn, w: w.(*answer), id: id, terminal: first.Attached.ID,
		typed: make(chan []byte, typedParts), over: make(chan struct{})}
	j.run(ctx, leave, first, events)
	return nil
}

// junction joins a WebSocket to a terminal. Its ends have contexts of their own:
// one that ends during a read or a write closes the connection without a word.
type junction struct {
	a            *API
	conn         *websocket.Conn
	w            *answer
	id, terminal string
	typed        chan []byte // waits to be typed
	held         atomic.Bool // the client's messages wait
	over         chan struct{}
}

// run lasts until either side ends, and says to the other one how. The events end
// with ctx, which cancel ends.
func (j *junction) run(ctx context.Context, cancel context.CancelCauseFunc, first sandbox.TerminalEvent, events sandbox.TerminalEvents) {
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	all.Go(func() { cancel(j.listen(ctx)) })
	all.Go(func() {
		if err := j.a.engine.TerminalInput(ctx, j.id, j.terminal, tunnel.Messages(ctx, j.typed)); sandbox.KindOf(err) != sandbox.Conflict {
			cancel(err) // Conflict: it has ended, and its exit is coming
		}
	})
	all.Go(func() { cancel(j.ping(ctx)) })
	defer close(j.over)
	all.Go(func() {
		<-ctx.Done()
		select {
		case <-time.After(partingTime):
			j.conn.CloseNow() // a client that takes nothing is not told why
		case <-j.over:
		}
	})

	err := j.show(first)
	for err == nil {
		var e sandbox.TerminalEvent
		if e, err = events.Recv(); err == nil {
			err = j.show(e)
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	j.end(err)
	j.conn.CloseNow() // wakes listen
}

// end tells the client why it is over. One that has gone is not told.
func (j *junction) end(err error) {
	var gone websocket.CloseError
	switch {
	case errors.Is(err, io.EOF):
		_ = j.conn.Close(websocket.StatusNormalClosure, "the terminal has ended")
	case errors.As(err, &gone), errors.Is(err, errGone):
	default:
		detail := j.a.errorBody(j.w, err).Error
		status := websocket.StatusInternalError
		switch detail.Code {
		case sandbox.Invalid:
			status = websocket.StatusPolicyViolation
		case sandbox.Unavailable:
			status = websocket.StatusGoingAway
		}
		if j.notice(wire.TerminalNotice{Error: &detail}) == nil {
			_ = j.conn.Close(status, string(detail.Code))
		}
	}
}

var errGone = errors.New("the client has gone")

// show sends one event.
func (j *junction) show(e sandbox.TerminalEvent) error {
	if len(e.Data) > 0 {
		return j.write(websocket.MessageBinary, e.Data)
	}
	return j.notice(wire.TerminalNotice{Attached: e.Attached, Seed: e.Seed, Resized: e.Resized, Exit: e.Exit})
}

func (j *junction) notice(n wire.TerminalNotice) error {
	b, err := json.Marshal(n)
	if err != nil {
		return sandbox.Errorf("encode notice", sandbox.Internal, "%w", err)
	}
	return j.write(websocket.MessageText, b)
}

func (j *junction) write(kind websocket.MessageType, b []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), writeTime)
	defer cancel()
	if err := j.conn.Write(ctx, kind, b); err != nil {
		return errGone
	}
	return nil
}

// ping finds out clients that went without a word.
func (j *junction) ping(ctx context.Context) error {
	bell := time.NewTicker(pingEvery)
	defer bell.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-bell.C:
		}
		if j.held.Load() {
			continue // its answer could not be read
		}
		pong, cancel := context.WithTimeout(context.Background(), pongTime)
		err := j.conn.Ping(pong)
		cancel()
		if err != nil && !j.held.Load() {
			return errGone
		}
	}
}

// listen takes the client's messages until it goes.
func (j *junction) listen(ctx context.Context) error {
	j.conn.SetReadLimit(-1) // binary messages are passed on in parts
	for {
		kind, message, err := j.conn.Reader(context.Background()) // ends with the connection
		if err == nil && kind == websocket.MessageBinary {
			err = j.pass(ctx, message)
		} else if err == nil {
			err = j.obey(ctx, message)
		}
		var own *sandbox.Error
		if errors.As(err, &own) {
			return err
		} else if err != nil {
			return errGone
		}
	}
}

// pass hands a message on to be typed. A program that does not read makes the
// client wait.
func (j *junction) pass(ctx context.Context, message io.Reader) error {
	for {
		part := make([]byte, typedPart)
		n, err := io.ReadFull(message, part)
		if n > 0 {
			select {
			case j.typed <- part[:n]:
			default:
				j.held.Store(true)
				select {
				case j.typed <- part[:n]:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				j.held.Store(false)
			}
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// obey does what a text message says.
func (j *junction) obey(ctx context.Context, message io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(message, wire.MaxTerminalControl+1))
	if err != nil {
		return err
	}
	var c wire.TerminalControl
	if len(b) > wire.MaxTerminalControl {
		err = fmt.Errorf("it has more than %d bytes", wire.MaxTerminalControl)
	} else {
		err = json.Unmarshal(b, &c)
	}
	switch {
	case err != nil:
	case c.Resize != nil:
		err = j.a.engine.ResizeTerminal(ctx, j.id, j.terminal, c.Resize.Cols, c.Resize.Rows)
	case c.Signal != "":
		if err = checkSignal(c.Signal); err == nil {
			err = j.a.engine.SignalTerminal(ctx, j.id, j.terminal, c.Signal)
		}
	default:
		err = errors.New("it asks for nothing")
	}
	var own *sandbox.Error
	switch {
	case sandbox.KindOf(err) == sandbox.Conflict:
		return nil // it has ended, and its exit is coming
	case err == nil, errors.As(err, &own):
		return err
	}
	return &sandbox.Error{Op: "read message", Kind: sandbox.Invalid, Err: err,
		Hint: `a text message is {"resize":{"cols":80,"rows":24}} or {"signal":"SIGINT"}; what is typed goes in binary ones`}
}
