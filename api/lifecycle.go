package api

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Lifecycle are the verbs that put sandboxes aside, take them up and keep them.
type Lifecycle interface {
	Pause(ctx context.Context, id string) (sandbox.Sandbox, error)
	Resume(ctx context.Context, id string) (sandbox.Sandbox, error)
	Stop(ctx context.Context, id string) (sandbox.Sandbox, error)
	Start(ctx context.Context, id string) (sandbox.Sandbox, error)
	KeepAlive(ctx context.Context, id string, seconds int64) (sandbox.Sandbox, error)
	Update(ctx context.Context, id string, u sandbox.Update) (sandbox.Sandbox, error)
	Fork(ctx context.Context, id string, req sandbox.ForkRequest) (sandbox.Fork, error)
}

// change serves a verb that takes an id and gives the sandbox.
func (a *API) change(verb func(context.Context, string) (sandbox.Sandbox, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		s, err := verb(r.Context(), r.PathValue("id"))
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, s)
	}
}

func (a *API) keepAlive(w http.ResponseWriter, r *http.Request) error {
	var req wire.KeepAlive
	if err := decode(w, r, &req); err != nil {
		return err
	}
	s, err := a.engine.KeepAlive(r.Context(), r.PathValue("id"), req.Seconds)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s)
}

func (a *API) update(w http.ResponseWriter, r *http.Request) error {
	var u sandbox.Update
	if err := decode(w, r, &u); err != nil {
		return err
	}
	s, err := a.engine.Update(r.Context(), r.PathValue("id"), u)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s)
}
