package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// openSession gives the session of a name: 201 if it was made, 200 if it was
// there.
func (a *API) openSession(w http.ResponseWriter, r *http.Request) error {
	var o sandbox.SessionOptions
	if err := decode(w, r, &o); err != nil {
		return err
	}
	s, created, err := a.engine.OpenSession(r.Context(), r.PathValue("id"), o)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if created {
		w.Header().Set("Location", r.URL.Path+"/"+s.Name)
		status = http.StatusCreated
	}
	return writeJSON(w, status, s)
}

func (a *API) sessions(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.Sessions(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Sessions{Sessions: orEmpty(all)})
}

// runInSession queues a command and streams what it does.
func (a *API) runInSession(w http.ResponseWriter, r *http.Request) error {
	session := r.PathValue("session")
	return a.runCommand(w, r, func(ctx context.Context, id string, cmd sandbox.Command) (sandbox.Events, error) {
		return a.engine.RunInSession(ctx, id, session, cmd)
	})
}

// cancelSession takes an empty body as a request for all commands.
func (a *API) cancelSession(w http.ResponseWriter, r *http.Request) error {
	var req wire.Cancel
	if err := decode(w, r, &req); err != nil && !errors.Is(err, errEmpty) {
		return err
	}
	n, err := a.engine.CancelSession(r.Context(), r.PathValue("id"), r.PathValue("session"), req.Process)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Cancelled{Cancelled: n})
}

func (a *API) closeSession(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.CloseSession(r.Context(), r.PathValue("id"), r.PathValue("session")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
