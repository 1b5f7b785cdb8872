package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// maxCodeLine bounds one event of a run, in bytes: a result, every byte of it escaped.
const maxCodeLine = 6*sandbox.MaxCodeResult + 1<<20

// CreateCodeContext makes a context and returns once its kernel is ready.
func (c *Client) CreateCodeContext(ctx context.Context, id string, o sandbox.CodeOptions) (out sandbox.CodeContext, err error) {
	err = c.do(ctx, call{op: "create context", method: http.MethodPost, path: []string{"sandboxes", id, "contexts"}, json: o}, &out)
	return out, err
}

// CodeContexts lists a sandbox's contexts in the order of their creation.
func (c *Client) CodeContexts(ctx context.Context, id string) ([]sandbox.CodeContext, error) {
	var out wire.CodeContexts
	err := c.do(ctx, call{op: "list contexts", method: http.MethodGet, path: []string{"sandboxes", id, "contexts"}}, &out)
	return out.Contexts, err
}

// CodeContext returns one context, by id or name, or NotFound.
func (c *Client) CodeContext(ctx context.Context, id, name string) (out sandbox.CodeContext, err error) {
	err = c.do(ctx, call{op: "get context", method: http.MethodGet, path: []string{"sandboxes", id, "contexts", name}}, &out)
	return out, err
}

// RestartCodeContext gives a context an empty kernel and ends its runs.
func (c *Client) RestartCodeContext(ctx context.Context, id, name string) (out sandbox.CodeContext, err error) {
	err = c.do(ctx, call{op: "restart context", method: http.MethodPost, path: []string{"sandboxes", id, "contexts", name, "restart"}}, &out)
	return out, err
}

// InterruptCodeContext breaks off the run that is under way, if there is one.
func (c *Client) InterruptCodeContext(ctx context.Context, id, name string) error {
	return c.do(ctx, call{op: "interrupt context", method: http.MethodPost, path: []string{"sandboxes", id, "contexts", name, "interrupt"}}, nil)
}

// RemoveCodeContext ends a context, its kernel and its runs.
func (c *Client) RemoveCodeContext(ctx context.Context, id, name string) error {
	return c.do(ctx, call{op: "remove context", method: http.MethodDelete, path: []string{"sandboxes", id, "contexts", name}}, nil)
}

// CodeLanguages lists the languages that have a kernel in a sandbox.
func (c *Client) CodeLanguages(ctx context.Context, id string) ([]string, error) {
	var out wire.Languages
	err := c.do(ctx, call{op: "list languages", method: http.MethodGet, path: []string{"sandboxes", id, "languages"}}, &out)
	return out.Languages, err
}

// RunCode queues code in a context and streams what it does; the first event is
// CodeStarted. The run is interrupted when the stream ends unless r.Detach is set.
func (c *Client) RunCode(ctx context.Context, id string, r sandbox.CodeRun) (sandbox.CodeEvents, error) {
	const op = "run code"
	if err := r.Check(); err != nil { // before a body is sent that would be refused
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	return c.codeEvents(ctx, call{op: op, method: http.MethodPost, path: []string{"sandboxes", id, "code"},
		json: wire.CodeRun{CodeRun: r, TimeoutMS: milliseconds(r.Timeout)}})
}

// AttachCode streams what a run did behind an event. The run is not ended by the end
// of this stream.
func (c *Client) AttachCode(ctx context.Context, id, run string, after int64) (sandbox.CodeEvents, error) {
	return c.codeEvents(ctx, call{op: "attach to run", method: http.MethodGet, path: []string{"sandboxes", id, "code", run},
		query: url.Values{"after": {strconv.FormatInt(after, 10)}}})
}

// CancelCode drops a run that waits and interrupts one that is under way.
func (c *Client) CancelCode(ctx context.Context, id, run string) error {
	return c.do(ctx, call{op: "cancel run", method: http.MethodDelete, path: []string{"sandboxes", id, "code", run}}, nil)
}

func (c *Client) codeEvents(ctx context.Context, q call) (sandbox.CodeEvents, error) {
	ctx, cancel := context.WithCancel(ctx)
	q.accept = wire.TypeNDJSON
	resp, err := c.send(ctx, q)
	if err != nil {
		cancel()
		return nil, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4096), maxCodeLine)
	return &codeEvents{ctx: ctx, cancel: cancel, op: q.op, body: resp.Body, lines: lines}, nil
}

// codeEvents is a sandbox.CodeEvents over lines of JSON.
type codeEvents struct {
	ctx    context.Context
	cancel context.CancelFunc
	op     string
	body   io.ReadCloser
	lines  *bufio.Scanner
	ended  bool
	once   sync.Once
	err    error
}

func (w *codeEvents) Recv() (sandbox.CodeEvent, error) {
	if w.ended {
		return sandbox.CodeEvent{}, io.EOF
	}
	for w.lines.Scan() {
		if line := bytes.TrimSpace(w.lines.Bytes()); len(line) > 0 {
			e, err := w.decode(line)
			w.ended = err == nil && e.Type == sandbox.CodeEnded
			return e, err
		}
	}
	if w.ctx.Err() != nil {
		return sandbox.CodeEvent{}, &sandbox.Error{Op: w.op, Err: context.Cause(w.ctx)}
	}
	err := w.lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return sandbox.CodeEvent{}, &sandbox.Error{Op: w.op, Kind: sandbox.Unavailable, Err: err,
		Hint: "attach to the run again behind the last event"}
}

func (w *codeEvents) decode(line []byte) (e sandbox.CodeEvent, err error) {
	if bytes.HasPrefix(line, []byte(`{"error":{"code"`)) {
		var broken wire.Error
		if json.Unmarshal(line, &broken) == nil && broken.Error.Code != "" {
			return e, &sandbox.Error{Op: w.op, Err: broken.Err()}
		}
	}
	if err = json.Unmarshal(line, &e); err == nil {
		err = checkCodeEvent(&e)
	}
	if err != nil {
		err = &sandbox.Error{Op: w.op, Kind: sandbox.Internal, Err: fmt.Errorf("read an event: %w", err)}
	}
	return e, err
}

// checkCodeEvent makes sure that an event has what its type promises.
func checkCodeEvent(e *sandbox.CodeEvent) error {
	switch {
	case e.Type == "":
		return errors.New("it has no type")
	case e.Type == sandbox.CodeShown && e.Result == nil, e.Type == sandbox.CodeRaised && e.Error == nil, e.Type == sandbox.CodeEnded && e.End == nil:
		return fmt.Errorf("one of type %s says nothing", e.Type)
	}
	return nil
}

func (w *codeEvents) Close() error {
	w.once.Do(func() {
		w.cancel()
		w.err = w.body.Close()
	})
	return w.err
}
