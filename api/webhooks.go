package api

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Webhooks are the verbs on addresses that changes are sent to.
type Webhooks interface {
	CreateWebhook(ctx context.Context, req sandbox.WebhookRequest) (sandbox.NewWebhook, error)
	Webhooks(ctx context.Context) ([]sandbox.Webhook, error)
	Webhook(ctx context.Context, id string) (sandbox.Webhook, error)
	RemoveWebhook(ctx context.Context, id string) error
}

func (a *API) createWebhook(w http.ResponseWriter, r *http.Request) error {
	var req sandbox.WebhookRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	made, err := a.engine.CreateWebhook(r.Context(), req)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/webhooks/"+made.ID)
	return writeJSON(w, http.StatusCreated, made)
}

func (a *API) webhooks(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.Webhooks(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Webhooks{Webhooks: all})
}

func (a *API) webhook(w http.ResponseWriter, r *http.Request) error {
	one, err := a.engine.Webhook(r.Context(), r.PathValue("webhook"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, one)
}

func (a *API) removeWebhook(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.RemoveWebhook(r.Context(), r.PathValue("webhook")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
