package api

import (
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// audit answers with a page of the audit, or streams it without end.
func (a *API) audit(w http.ResponseWriter, r *http.Request) error {
	form, err := accepted(r, wire.TypeJSON, wire.TypeSSE, wire.TypeNDJSON)
	if err != nil {
		return err
	}
	q := queryOf(r)
	aq := sandbox.AuditQuery{
		Sandbox: q.text("sandbox"), Account: q.text("account"), Denied: q.boolean("denied"), Since: q.time("since"),
		After: q.text("after"), Limit: int(q.positive("limit", sandbox.MaxPage)),
	}
	for _, k := range q.texts("kind") {
		aq.Kinds = append(aq.Kinds, sandbox.AuditKind(k))
	}
	if err := q.check(); err != nil {
		return err
	}
	if form == wire.TypeJSON {
		page, err := a.engine.Audit(r.Context(), aq)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, page)
	}
	if last := r.Header.Get("Last-Event-ID"); last != "" { // what a browser's EventSource sends again
		aq.After = last
	}
	ctx, cancel := a.untilClose(r)
	defer cancel()
	entries, err := a.engine.FollowAudit(ctx, aq)
	if err != nil {
		return because(ctx, err)
	}
	h := w.Header()
	h.Set("Content-Type", form)
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := auditWriter{watchWriter{w: &pacedWriter{w: w, rc: http.NewResponseController(w), prompt: true}, sse: form == wire.TypeSSE}}
	if err := out.KeepAlive(); err != nil { // the client sees that it follows
		return err
	}
	if err = pump[sandbox.AuditEntry](ctx, entries, out); err == nil {
		return nil
	}
	return out.fail(a.errorBody(w.(*answer), because(ctx, err))) // told in the stream itself
}

// auditWriter writes entries in one of two forms.
type auditWriter struct{ watchWriter }

// Event writes one entry; the id of a server-sent one is its cursor.
func (o auditWriter) Event(e sandbox.AuditEntry) error { return o.write(string(e.Kind), e.Cursor, e) }

func (o auditWriter) KeepAlive() error { return o.watchWriter.KeepAlive() }
