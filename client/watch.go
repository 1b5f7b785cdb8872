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

// maxWatchLine bounds one event, in bytes: two paths, every byte of them escaped.
const maxWatchLine = 256 << 10

// Watch streams what changes at or beneath a path. The first event is Ready, or
// Overflow when a cursor could not be gone on from. A stream that breaks is
// opened again with the cursor of the last event.
func (c *Client) Watch(ctx context.Context, id string, r sandbox.WatchRequest) (sandbox.Watch, error) {
	const op = "watch"
	v := url.Values{"path": {r.Path}}
	setBool(v, "recursive", r.Recursive)
	setIf(v, "cursor", r.Cursor)
	for _, p := range r.Include {
		v.Add("include", p)
	}
	for _, p := range r.Exclude {
		v.Add("exclude", p)
	}
	if r.Window != 0 {
		v.Set("window_ms", strconv.FormatInt(r.Window.Milliseconds(), 10))
	}
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.send(ctx, call{op: op, method: http.MethodGet, path: []string{"sandboxes", id, "watch"}, query: v, accept: wire.TypeNDJSON})
	if err != nil {
		cancel()
		return nil, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4096), maxWatchLine)
	return &watch{ctx: ctx, cancel: cancel, op: op, body: resp.Body, lines: lines}, nil
}

// watch is a sandbox.Watch over lines of JSON.
type watch struct {
	ctx    context.Context
	cancel context.CancelFunc
	op     string
	body   io.ReadCloser
	lines  *bufio.Scanner
	once   sync.Once
	err    error
}

func (w *watch) Recv() (sandbox.WatchEvent, error) {
	for w.lines.Scan() {
		line := bytes.TrimSpace(w.lines.Bytes())
		if len(line) > 0 {
			return w.decode(line)
		}
	}
	if w.ctx.Err() != nil {
		return sandbox.WatchEvent{}, &sandbox.Error{Op: w.op, Err: context.Cause(w.ctx)}
	}
	err := w.lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return sandbox.WatchEvent{}, &sandbox.Error{Op: w.op, Kind: sandbox.Unavailable, Err: err,
		Hint: "watch again with the cursor of the last event"}
}

func (w *watch) decode(line []byte) (e sandbox.WatchEvent, err error) {
	var broken wire.Error
	if json.Unmarshal(line, &broken) == nil && broken.Error.Code != "" {
		return e, &sandbox.Error{Op: w.op, Err: broken.Err()}
	}
	if err = json.Unmarshal(line, &e); err == nil && e.Type == "" {
		err = errors.New("it has no type")
	}
	if err != nil {
		err = &sandbox.Error{Op: w.op, Kind: sandbox.Internal, Err: fmt.Errorf("read an event: %w", err)}
	}
	return e, err
}

func (w *watch) Close() error {
	w.once.Do(func() {
		w.cancel()
		w.err = w.body.Close()
	})
	return w.err
}
