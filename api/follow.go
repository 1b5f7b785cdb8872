package api

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/sandbox/wire"
)

// follow streams a log without end, from what begin opens. of says what an entry is
// called, and the cursor behind it.
func follow[T any](a *API, w http.ResponseWriter, r *http.Request, form string, begin func(context.Context) (source[T], error), of func(T) (name, cursor string)) error {
	ctx, cancel := a.untilClose(r)
	defer cancel()
	entries, err := begin(ctx)
	if err != nil {
		return because(ctx, err)
	}
	h := w.Header()
	h.Set("Content-Type", form)
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := logWriter[T]{watchWriter{w: &pacedWriter{w: w, rc: http.NewResponseController(w), prompt: true}, sse: form == wire.TypeSSE}, of}
	if err := out.KeepAlive(); err != nil { // the client sees that it follows
		return err
	}
	if err = pump[T](ctx, entries, out); err == nil {
		return nil
	}
	return out.fail(a.errorBody(w.(*answer), because(ctx, err))) // told in the stream itself
}

// logWriter writes entries in one of two forms.
type logWriter[T any] struct {
	watchWriter
	of func(T) (name, cursor string)
}

// Event writes one entry; the id of a server-sent one is its cursor.
func (o logWriter[T]) Event(v T) error {
	name, cursor := o.of(v)
	return o.write(name, cursor, v)
}

// KeepAlive writes what readers ignore.
func (o logWriter[T]) KeepAlive() error { return o.watchWriter.KeepAlive() }
