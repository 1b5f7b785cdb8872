package api

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Journal tells what became of the sandboxes.
type Journal interface {
	Changes(ctx context.Context, q sandbox.ChangeQuery) (sandbox.ChangePage, error)
	FollowChanges(ctx context.Context, q sandbox.ChangeQuery) (sandbox.ChangeStream, error)
}

// changes answers with a page of the journal, or streams it without end.
func (a *API) changes(w http.ResponseWriter, r *http.Request) error {
	form, err := accepted(r, wire.TypeJSON, wire.TypeSSE, wire.TypeNDJSON)
	if err != nil {
		return err
	}
	q := queryOf(r)
	cq := sandbox.ChangeQuery{After: q.text("after"), Sandbox: q.text("sandbox"), Limit: int(q.positive("limit", sandbox.MaxPage))}
	for _, t := range q.texts("type") {
		cq.Types = append(cq.Types, sandbox.ChangeType(t))
	}
	if err := q.check(); err != nil {
		return err
	}
	if form == wire.TypeJSON {
		page, err := a.engine.Changes(r.Context(), cq)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, page)
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" { // what a browser's EventSource sends again
		cq.After = last
	}
	ctx, cancel := a.untilClose(r)
	defer cancel()
	events, err := a.engine.FollowChanges(ctx, cq)
	if err != nil {
		return because(ctx, err)
	}
	h := w.Header()
	h.Set("Content-Type", form)
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := changeWriter{watchWriter{w: &pacedWriter{w: w, rc: http.NewResponseController(w), prompt: true}, sse: form == wire.TypeSSE}}
	if err := out.KeepAlive(); err != nil { // the client sees that it follows
		return err
	}
	if err = pump[sandbox.Change](ctx, events, out); err == nil {
		return nil
	}
	return out.fail(a.errorBody(w.(*answer), because(ctx, err))) // told in the stream itself
}

// changeWriter writes changes in one of two forms.
type changeWriter struct{ watchWriter }

// Event writes one change; the id of a server-sent one is its cursor.
func (o changeWriter) Event(c sandbox.Change) error { return o.write(string(c.Type), c.Cursor, c) }

func (o changeWriter) KeepAlive() error { return o.watchWriter.KeepAlive() }
