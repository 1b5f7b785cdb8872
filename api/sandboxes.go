package api

import (
	"errors"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
)

// create takes an empty body as a request for the defaults. What was to be got
// or created is answered with 200: it may have been there.
func (a *API) create(w http.ResponseWriter, r *http.Request) error {
	var req sandbox.CreateRequest
	if err := decode(w, r, &req); err != nil && !errors.Is(err, errEmpty) {
		return err
	}
	s, err := a.engine.Create(r.Context(), req)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/sandboxes/"+string(s.ID))
	status := http.StatusCreated
	if req.Get {
		status = http.StatusOK
	}
	return writeJSON(w, status, s)
}

func (a *API) list(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	lq := sandbox.ListQuery{
		Template: q.text("template"),
		Name:     q.text("name"),
		Tags:     q.texts("tag"),
		Metadata: q.prefixed("metadata."),
		After:    q.text("after"),
		Limit:    int(q.positive("limit", sandbox.MaxPage)),
	}
	for _, s := range q.texts("state") {
		lq.States = append(lq.States, sandbox.State(s))
	}
	if err := q.check(); err != nil {
		return err
	}
	page, err := a.engine.List(r.Context(), lq)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, page)
}

func (a *API) get(w http.ResponseWriter, r *http.Request) error {
	s, err := a.engine.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s)
}

func (a *API) remove(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.Remove(r.Context(), r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
