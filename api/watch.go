package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// watch streams what changes in a sandbox's files.
func (a *API) watch(w http.ResponseWriter, r *http.Request) error {
	form, err := accepted(r, wire.TypeNDJSON, wire.TypeSSE)
	if err != nil {
		return err
	}
	if form == wire.TypeJSON { // whatever there is
		form = wire.TypeNDJSON
	}
	req, err := watchRequest(r)
	if err != nil {
		return err
	}
	ctx, cancel := a.untilClose(r)
	defer cancel()
	events, err := a.engine.Watch(ctx, r.PathValue("id"), req)
	if err != nil {
		return because(ctx, err)
	}
	h := w.Header()
	h.Set("Content-Type", form)
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := &watchWriter{w: &pacedWriter{w: w, rc: http.NewResponseController(w), prompt: true}, sse: form == wire.TypeSSE}
	if err = pump[sandbox.WatchEvent](ctx, events, out); err == nil {
		return nil
	}
	return out.fail(a.errorBody(w.(*answer), because(ctx, err))) // told in the stream itself
}

func watchRequest(r *http.Request) (sandbox.WatchRequest, error) {
	q := queryOf(r)
	req := sandbox.WatchRequest{Path: q.path("path"), Recursive: q.boolean("recursive"),
		Include: q.texts("include"), Exclude: q.texts("exclude"), Cursor: q.text("cursor")}
	if req.Cursor == "" {
		req.Cursor = r.Header.Get("Last-Event-ID") // what a browser's EventSource sends again
	}
	window := q.positive("window_ms", int64(sandbox.MaxWatchWindow/time.Millisecond))
	req.Window = time.Duration(window) * time.Millisecond
	if err := q.check(); err != nil {
		return req, err
	}
	if err := req.Check(); err != nil {
		return req, &sandbox.Error{Op: "watch", Err: err}
	}
	return req, nil
}

// watchWriter writes the events of a watch in one of two forms.
type watchWriter struct {
	w   io.Writer
	sse bool
}

// Event writes one event; the id of a server-sent one is its cursor.
func (o *watchWriter) Event(e sandbox.WatchEvent) error { return o.write(string(e.Type), e.Cursor, e) }

// KeepAlive writes what readers ignore: a comment, or an empty line.
func (o *watchWriter) KeepAlive() error {
	line := "\n"
	if o.sse {
		line = ": keep-alive\n\n"
	}
	_, err := io.WriteString(o.w, line)
	return err
}

func (o *watchWriter) fail(e wire.Error) error { return o.write(wire.EventError, "", e) }

func (o *watchWriter) write(name, id string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if !o.sse {
		_, err = o.w.Write(append(b, '\n'))
		return err
	}
	head := "event: " + name + "\n"
	if id != "" {
		head += "id: " + id + "\n"
	}
	_, err = fmt.Fprintf(o.w, "%sdata: %s\n\n", head, b)
	return err
}
