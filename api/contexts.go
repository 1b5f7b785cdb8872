package api

import (
	"errors"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// putContext takes the files that a template's build copies from.
func (a *API) putContext(w http.ResponseWriter, r *http.Request) error {
	digest, size, err := a.engine.PutContext(r.Context(), r.URL.Query().Get("name"), r.Body)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Context{Digest: digest, Size: size})
}

// hasContext spares a client from sending files that are there.
func (a *API) hasContext(w http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("context")
	ok, err := a.engine.HasContext(r.Context(), name)
	if err == nil && !ok {
		err = &sandbox.Error{Op: "look for context", Kind: sandbox.NotFound, Err: errors.New("no such context"), Hint: "send it: POST /v1/contexts"}
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Context{Name: name})
}

// startBuild begins a build that goes on by itself.
func (a *API) startBuild(w http.ResponseWriter, r *http.Request) error {
	var req struct {
		ID string `json:"id"`
		sandbox.BuildRequest
	}
	if err := decode(w, r, &req); err != nil {
		return err
	}
	b, err := a.engine.StartBuild(r.Context(), req.ID, req.BuildRequest)
	if err != nil {
		return err
	}
	b.Lines = []sandbox.BuildLine{}
	return writeJSON(w, http.StatusAccepted, b)
}

func (a *API) getBuild(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	after := q.positive("after", 1<<31)
	if err := q.check(); err != nil {
		return err
	}
	b, err := a.engine.GetBuild(r.Context(), r.PathValue("build"), int(after))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, b)
}

func (a *API) cancelBuild(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.CancelBuild(r.Context(), r.PathValue("build")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
