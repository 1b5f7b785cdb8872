package cloudflare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-dev/berth/sandbox"
)

// maxTimeout bounds a timeout that a client gives: longer ones mean none.
const maxTimeout = 30 * 24 * time.Hour

// timeout is a time in milliseconds as a duration.
func timeout(ms float64) (time.Duration, error) {
	switch {
	case !(ms >= 0): // NaN too
		return 0, invalid("the timeout must not be negative")
	case ms > float64(maxTimeout/time.Millisecond):
		return 0, nil
	}
	return time.Duration(ms * float64(time.Millisecond)), nil
}

// execute runs a command to its end.
func (b *box) execute(ctx context.Context, r executeRequest) (any, error) {
	limit, err := r.check()
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	var events sandbox.Events
	var undo string
	if hasState(r.SessionID) {
		var cwd string
		if cwd, err = b.folder(ctx, r.SessionID, r.Cwd); err != nil {
			return nil, err
		}
		if r.TimeoutMs == 0 {
			if limit, err = b.patience(ctx, r.SessionID); err != nil {
				return nil, r.fault(err)
			}
		}
		cmd := sandbox.Command{Timeout: limit, Lossless: true}
		cmd.Shell, undo = within(r.Command, cwd, r.Env)
		events, err = b.inSession(ctx, r.SessionID, cmd)
	} else {
		events, err = b.start(ctx, task{command: r.Command, cwd: r.Cwd, env: r.Env, timeout: limit})
	}
	if err != nil {
		return nil, r.fault(err)
	}
	out, err := collect(events, maxOutput)
	if err != nil {
		return nil, r.fault(err)
	}
	if out.exit.TimedOut && undo != "" {
		if err := b.undo(ctx, r.SessionID, undo); err != nil {
			return nil, r.fault(err)
		}
	}
	if err := b.ended(ctx, r, limit, out.exit); err != nil {
		return nil, err
	}
	exit := exitCode(out.exit)
	return executeResult{Success: exit == 0, ExitCode: exit, Stdout: trimmed(out.stdout), Stderr: trimmed(out.stderr),
		Command: r.Command, Timestamp: stamp(begun), Duration: time.Since(begun).Milliseconds(), SessionID: r.SessionID}, nil
}

// undo takes back what a command brought that was ended.
func (b *box) undo(ctx context.Context, session, text string) error {
	events, err := b.inSession(ctx, session, sandbox.Command{Shell: text, Timeout: undoTime, Lossless: true})
	if err != nil {
		return err
	}
	_, err = collect(events, maxOutput)
	return err
}

const undoTime = time.Minute

// check reports what is wrong with a request, and its time limit.
func (r *executeRequest) check() (time.Duration, error) {
	if strings.TrimSpace(r.Command) == "" {
		return 0, &fault{code: invalidCommand, text: "Command cannot be empty", context: map[string]any{"command": r.Command}}
	}
	if err := checkEnv(r.Env); err != nil {
		return 0, err
	}
	return timeout(r.TimeoutMs)
}

// fault puts why a command did not run in these clients' words.
func (r *executeRequest) fault(err error) error {
	var already *fault
	kind := sandbox.KindOf(err)
	if errors.As(err, &already) || kind == sandbox.Unavailable || kind == sandbox.Internal {
		return err
	}
	c := commandError
	if kind == sandbox.Invalid {
		c = invalidCommand
	}
	return &fault{code: c, text: err.Error(), context: map[string]any{"command": r.Command}, err: err, op: "command.execute"}
}

// exitCode is how a command ended; 124 when its time was up.
func exitCode(x sandbox.Exit) int {
	if x.TimedOut {
		return 124
	}
	return x.Code
}

// ended says what the end of a session's command means when it was not the
// command's own: the shell is gone, and the next call begins with a new one.
func (b *box) ended(ctx context.Context, r executeRequest, limit time.Duration, x sandbox.Exit) error {
	if !hasState(r.SessionID) {
		return nil
	}
	switch {
	case x.Error != "":
		return &fault{code: commandError, text: x.Error, context: map[string]any{"command": r.Command}, op: "command.execute"}
	case x.TimedOut:
		return &fault{code: commandError, text: fmt.Sprintf("Command timeout after %dms", limit.Milliseconds()),
			context: map[string]any{"command": r.Command, "timeout": limit.Milliseconds()}, op: "command.execute"}
	case x.Restarted == "" || !strings.Contains(x.Restarted, "shell exited") && !strings.Contains(x.Restarted, "shell was ended"):
		return nil
	}
	if err := b.close(ctx, r.SessionID); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return err
	}
	return &fault{code: sessionTerminated, text: fmt.Sprintf("Session '%s' terminated: its shell exited (exit code: %d)", r.SessionID, x.Code),
		context: map[string]any{"sessionId": r.SessionID, "exitCode": x.Code}, op: "command.execute",
		err: &sandbox.Error{Kind: sandbox.Conflict, Err: errors.New(x.Restarted), Hint: "the next call of the same session begins with a new shell"}}
}

// executeStream runs a command beside its session's shell and tells what it does.
func (b *box) executeStream(ctx context.Context, r executeRequest, out stream) error {
	limit, err := r.check()
	if err != nil {
		return err
	}
	events, err := b.start(ctx, task{command: r.Command, session: r.SessionID, cwd: r.Cwd, env: r.Env, timeout: limit})
	if err != nil {
		return r.fault(err)
	}
	text := newText()
	begin := func(p *sandbox.Process) error {
		return out.send("start", startEvent{Type: "start", Command: r.Command, Timestamp: now(), SessionID: r.SessionID, PID: p.PID})
	}
	return follow(ctx, events, func(e sandbox.Event) error {
		switch {
		case e.Started != nil:
			return begin(e.Started)
		case e.Exit != nil && e.Exit.Error != "":
			return out.send("error", errorEvent{Type: "error", Error: e.Exit.Error, Timestamp: now()})
		case e.Exit != nil:
			if err := text.rest(func(s sandbox.Stream, data string) error { return out.send(string(s), dataOf(s, data, "")) }); err != nil {
				return err
			}
			exit := exitCode(*e.Exit)
			return out.send("complete", completeEvent{Type: "complete", ExitCode: exit, Timestamp: now(),
				Result: &streamResult{Success: exit == 0, ExitCode: exit}})
		}
		if data := text.take(e.Stream, e.Data); data != "" {
			return out.send(string(e.Stream), dataOf(e.Stream, data, ""))
		}
		return nil
	})
}

// follow gives every event to take until the last one, and ends the stream.
func follow(ctx context.Context, events sandbox.Events, take func(sandbox.Event) error) (err error) {
	stop := context.AfterFunc(ctx, func() { _ = events.Close() })
	defer func() {
		stop()
		if cerr := events.Close(); err == nil {
			err = cerr
		}
	}()
	for {
		e, err := events.Recv()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := take(e); err != nil {
			return err
		}
	}
}

// text makes valid text of bytes that come in parts: the beginning of a character
// waits for its end.
type text map[sandbox.Stream][]byte

func newText() text { return text{} }

func (t text) take(s sandbox.Stream, b []byte) string {
	if len(t[s]) > 0 {
		b = append(t[s], b...)
		t[s] = nil
	}
	keep := 0
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-n:]) {
				keep = n
			}
			break
		}
	}
	if keep > 0 {
		t[s] = append([]byte(nil), b[len(b)-keep:]...)
		b = b[:len(b)-keep]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// rest gives what still waits.
func (t text) rest(send func(sandbox.Stream, string) error) error {
	for s, b := range t {
		if len(b) == 0 {
			continue
		}
		t[s] = nil
		if err := send(s, "\uFFFD"); err != nil {
			return err
		}
	}
	return nil
}
