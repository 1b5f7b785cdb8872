package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Secrets are the verbs on secrets, whose values go in and never come out, and on
// which sandbox may have them used for it.
type Secrets interface {
	SetSecret(ctx context.Context, name string, value sandbox.SecretValue) (sandbox.Secret, error)
	Secrets(ctx context.Context) ([]sandbox.Secret, error)
	Secret(ctx context.Context, name string) (sandbox.Secret, error)
	RemoveSecret(ctx context.Context, name string) error

	Grants(ctx context.Context, id string) ([]sandbox.Grant, error)
	RevokeGrant(ctx context.Context, id, secret string) error
	RestoreGrant(ctx context.Context, id, secret string) error
}

func (a *API) secrets(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.Secrets(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Secrets{Secrets: all})
}

func (a *API) secret(w http.ResponseWriter, r *http.Request) error {
	s, err := a.engine.Secret(r.Context(), r.PathValue("secret"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s)
}

func (a *API) setSecret(w http.ResponseWriter, r *http.Request) error {
	var v wire.SecretValue
	if err := decode(w, r, &v); err != nil {
		return secretBody(err)
	}
	value := sandbox.SecretValue(v.Base64)
	if v.Value != "" {
		if len(v.Base64) > 0 {
			return badBody(errors.New("it has both value and base64"), "give one of them")
		}
		value = sandbox.SecretValue(v.Value)
	}
	s, err := a.engine.SetSecret(r.Context(), r.PathValue("secret"), value)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s)
}

// secretBody is the error of a body that may hold a secret: what is wrong with it
// is not repeated word by word.
func secretBody(err error) error {
	if errors.Is(err, errEmpty) {
		return err
	}
	return badBody(errors.New("it is not an object with value or base64"), `send {"value":"…"}`)
}

func (a *API) removeSecret(w http.ResponseWriter, r *http.Request) error {
	return done(w, a.engine.RemoveSecret(r.Context(), r.PathValue("secret")))
}

func (a *API) grants(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.Grants(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if all == nil {
		all = []sandbox.Grant{}
	}
	return writeJSON(w, http.StatusOK, wire.Grants{Grants: all})
}

func (a *API) revokeGrant(w http.ResponseWriter, r *http.Request) error {
	return done(w, a.engine.RevokeGrant(r.Context(), r.PathValue("id"), r.PathValue("secret")))
}

func (a *API) restoreGrant(w http.ResponseWriter, r *http.Request) error {
	return done(w, a.engine.RestoreGrant(r.Context(), r.PathValue("id"), r.PathValue("secret")))
}

// done answers a verb that has no result.
func done(w http.ResponseWriter, err error) error {
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}
