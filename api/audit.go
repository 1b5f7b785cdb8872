package api

import (
	"context"
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
	return follow(a, w, r, form, func(ctx context.Context) (source[sandbox.AuditEntry], error) { return a.engine.FollowAudit(ctx, aq) },
		func(e sandbox.AuditEntry) (string, string) { return string(e.Kind), e.Cursor })
}
