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
	return follow(a, w, r, form, func(ctx context.Context) (source[sandbox.Change], error) { return a.engine.FollowChanges(ctx, cq) },
		func(c sandbox.Change) (string, string) { return string(c.Type), c.Cursor })
}
