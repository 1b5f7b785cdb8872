package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Changes returns one page of the journal, oldest first.
func (c *Client) Changes(ctx context.Context, q sandbox.ChangeQuery) (sandbox.ChangePage, error) {
	var p sandbox.ChangePage
	err := c.do(ctx, call{op: "list events", method: http.MethodGet, path: []string{"events"}, query: changeQuery(q)}, &p)
	return p, err
}

func changeQuery(q sandbox.ChangeQuery) url.Values {
	v := url.Values{}
	setIf(v, "after", q.After)
	setIf(v, "sandbox", q.Sandbox)
	setInt(v, "limit", int64(q.Limit))
	for _, t := range q.Types {
		v.Add("type", string(t))
	}
	return v
}

// FollowChanges streams the journal, what is to come too. A stream that breaks is
// opened again with the cursor of the last change.
func (c *Client) FollowChanges(ctx context.Context, q sandbox.ChangeQuery) (sandbox.ChangeStream, error) {
	q.Limit = 0
	return follow(ctx, c, "follow events", "events", changeQuery(q), func(e sandbox.Change) string { return e.Cursor })
}

// CreateWebhook has every change from now on sent to an address.
func (c *Client) CreateWebhook(ctx context.Context, req sandbox.WebhookRequest) (sandbox.NewWebhook, error) {
	var w sandbox.NewWebhook
	err := c.do(ctx, call{op: "create webhook", method: http.MethodPost, path: []string{"webhooks"}, json: req}, &w)
	return w, err
}

// Webhooks lists the webhooks.
func (c *Client) Webhooks(ctx context.Context) ([]sandbox.Webhook, error) {
	var all wire.Webhooks
	err := c.do(ctx, call{op: "list webhooks", method: http.MethodGet, path: []string{"webhooks"}}, &all)
	return all.Webhooks, err
}

// Webhook returns one webhook, or NotFound.
func (c *Client) Webhook(ctx context.Context, id string) (sandbox.Webhook, error) {
	var w sandbox.Webhook
	err := c.do(ctx, call{op: "get webhook", method: http.MethodGet, path: []string{"webhooks", id}}, &w)
	return w, err
}

// RemoveWebhook ends the deliveries to an address.
func (c *Client) RemoveWebhook(ctx context.Context, id string) error {
	return c.do(ctx, call{op: "remove webhook", method: http.MethodDelete, path: []string{"webhooks", id}}, nil)
}
