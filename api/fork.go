package api

import (
	"errors"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// fork takes an empty body as a request for one child. The answer tells of each
// child what became of it: there is one at least.
func (a *API) fork(w http.ResponseWriter, r *http.Request) error {
	req := sandbox.ForkRequest{Count: 1}
	if err := decode(w, r, &req); err != nil && !errors.Is(err, errEmpty) {
		return err
	}
	f, err := a.engine.Fork(r.Context(), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	id := &answer{request: w.Header().Get(wire.HeaderRequestID)}
	return writeJSON(w, http.StatusCreated, wire.ForkOf(f, func(err error) wire.ErrorDetail { return a.errorBody(id, err).Error }))
}
