package bridge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

const (
	keepAlive = 15 * time.Second // of silence; then a stream says that it lives
	writeTime = 30 * time.Second // for a client to take what is sent; a slower one is gone
	timedOut  = 124              // the exit code of a command whose time was over
)

// exec runs a command and streams what it does. From when the request is known to be
// sound, an error is told in the stream.
func (b *Bridge) exec(w http.ResponseWriter, r *http.Request) error {
	session, err := sessionOf(r)
	if err != nil {
		return err
	}
	c, err := commandOf(w, r)
	if err != nil {
		return err
	}
	id, err := b.box(r)
	if err != nil {
		return err
	}
	out := newEvents(w)
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	defer out.live(ctx, stop)()
	if err := b.relay(ctx, out, id, session, c); err != nil {
		f := b.faultOf(r, err)
		return out.send("error", problem{f.text, f.code})
	}
	return nil
}

// commandOf reads and checks the command of a request.
func commandOf(w http.ResponseWriter, r *http.Request) (command, error) {
	var c command
	if err := decode(w, r, &c, false); err != nil {
		return c, err
	}
	if len(c.Argv) == 0 {
		return c, invalid("argv must be a non-empty array")
	}
	if c.TimeoutMS < 0 || c.TimeoutMS > float64(math.MaxInt64/time.Millisecond) {
		return c, invalid("timeout_ms must be a positive number of milliseconds")
	}
	if c.Cwd == "" {
		return c, nil
	}
	cwd, ok := inWorkspace(c.Cwd)
	if !ok {
		return c, forbidden("cwd must resolve to a location within " + workspace)
	}
	c.Cwd = cwd
	return c, nil
}

// relay starts a command and passes on what it does, to its end.
func (b *Bridge) relay(ctx context.Context, out *events, id, session string, c command) error {
	start := b.runAlone
	if session != "" {
		start = b.runInSession
	}
	all, err := start(ctx, id, session, c)
	if err != nil {
		return execError(err)
	}
	defer all.Close()
	for {
		e, err := all.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return execError(sandbox.Errorf("run command", sandbox.Unavailable, "it ended without a word"))
		case err != nil:
			return execError(err)
		case len(e.Data) > 0:
			err = out.output(e.Stream, e.Data)
		case e.Exit != nil && e.Exit.Error != "":
			return execError(sandbox.Errorf("run command", sandbox.Unavailable, "%s", e.Exit.Error))
		case e.Exit != nil:
			code := e.Exit.Code
			if e.Exit.TimedOut {
				code = timedOut
			}
			return out.send("exit", exited{code})
		}
		if err != nil {
			return err
		}
	}
}

// execError tells what is wrong with a command from what keeps it from running.
func execError(err error) error {
	code := codeExecTransport
	switch sandbox.KindOf(err) {
	case sandbox.Invalid, sandbox.NotFound, sandbox.Conflict:
		code = codeExec
	}
	return failed("exec failed", code, err)
}

// runAlone starts a command in a shell of its own.
func (b *Bridge) runAlone(ctx context.Context, id, _ string, c command) (sandbox.Events, error) {
	cwd := c.Cwd
	if cwd == "" {
		cwd = workspace
	}
	return b.Engine.Exec(ctx, id, sandbox.Command{Argv: []string{"bash", "-c", c.line()}, Cwd: cwd, User: user,
		Timeout: c.timeout(), Lossless: true})
}

func (c *command) timeout() time.Duration {
	return time.Duration(c.TimeoutMS * float64(time.Millisecond))
}

// line is the command as a shell reads it.
func (c *command) line() string {
	words := make([]string, len(c.Argv))
	for i, a := range c.Argv {
		words[i] = quote(a)
	}
	return strings.Join(words, " ")
}

// quote makes one word of s for a shell. Plain words stay as they are, so that one may
// be the name of what only the shell knows, cd for one.
func quote(s string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("@%+=:,./-_", c)
	}
	if s != "" && strings.TrimFunc(s, plain) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// events is a stream of server-sent events. Its methods may be called at once.
type events struct {
	mu   sync.Mutex
	w    http.ResponseWriter
	rc   *http.ResponseController
	last time.Time // that something was sent
}

// newEvents begins an answer that is a stream.
func newEvents(w http.ResponseWriter) *events {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	return &events{w: w, rc: http.NewResponseController(w), last: time.Now()}
}

// live fills silence with signs of life, until the function that it returns is called.
// A client that takes none is gone: then gone is called.
func (e *events) live(ctx context.Context, gone func()) (end func()) {
	ctx, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() {
		bell := time.NewTicker(keepAlive)
		defer bell.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-bell.C:
			}
			if e.write(": alive\n\n", true) != nil {
				gone()
				return
			}
		}
	})
	return func() { stop(); all.Wait() }
}

func (e *events) output(stream sandbox.Stream, data []byte) error {
	return e.write(fmt.Sprintf("event: %s\ndata: %s\n\n", stream, base64.StdEncoding.EncodeToString(data)), false)
}

func (e *events) send(name string, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return sandbox.Errorf("encode event", sandbox.Internal, "%w", err)
	}
	return e.write(fmt.Sprintf("event: %s\ndata: %s\n\n", name, body), false)
}

// write sends at once. A filler is left out if something else was sent lately.
func (e *events) write(text string, filler bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	if filler && now.Sub(e.last) < keepAlive {
		return nil
	}
	e.last = now
	if err := e.rc.SetWriteDeadline(now.Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := io.WriteString(e.w, text); err != nil {
		return err
	}
	return e.rc.Flush()
}
