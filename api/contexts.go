package api

import (
	"errors"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// putContext takes the files that a template's build copies from.
func (a *API) putContext(w http.ResponseWriter, r *http.Request) error {
	digest, size, err := a.engine.PutContext(r.Context(), r.Body)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Context{Digest: digest, Size: size})
}

// hasContext spares a client from sending files that are there.
func (a *API) hasContext(w http.ResponseWriter, r *http.Request) error {
	digest := r.PathValue("digest")
	ok, err := a.engine.HasContext(r.Context(), digest)
	if err == nil && !ok {
		err = &sandbox.Error{Op: "look for context", Kind: sandbox.NotFound, Err: errors.New("no such context"), Hint: "send it: POST /v1/contexts"}
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Context{Digest: digest})
}
