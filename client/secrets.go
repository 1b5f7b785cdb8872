package client

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// SetSecret makes a secret, or gives it a new value. The value is overwritten.
func (c *Client) SetSecret(ctx context.Context, name string, value sandbox.SecretValue) (sandbox.Secret, error) {
	defer value.Wipe()
	var s sandbox.Secret
	err := c.do(ctx, call{op: "set secret", method: http.MethodPut, path: []string{"secrets", name}, json: wire.SecretValue{Base64: value}}, &s)
	return s, err
}

// Secrets lists the account's secrets: all but their values.
func (c *Client) Secrets(ctx context.Context) ([]sandbox.Secret, error) {
	var all wire.Secrets
	err := c.do(ctx, call{op: "list secrets", method: http.MethodGet, path: []string{"secrets"}}, &all)
	return all.Secrets, err
}

// Secret tells of one secret, or NotFound.
func (c *Client) Secret(ctx context.Context, name string) (sandbox.Secret, error) {
	var s sandbox.Secret
	err := c.do(ctx, call{op: "get secret", method: http.MethodGet, path: []string{"secrets", name}}, &s)
	return s, err
}

// RemoveSecret forgets a secret.
func (c *Client) RemoveSecret(ctx context.Context, name string) error {
	return c.do(ctx, call{op: "remove secret", method: http.MethodDelete, path: []string{"secrets", name}}, nil)
}

// Grants lists which secrets a sandbox may have used for it.
func (c *Client) Grants(ctx context.Context, id string) ([]sandbox.Grant, error) {
	var all wire.Grants
	err := c.do(ctx, call{op: "list grants", method: http.MethodGet, path: []string{"sandboxes", id, "grants"}}, &all)
	return all.Grants, err
}

// RevokeGrant takes a secret away from one sandbox, at once.
func (c *Client) RevokeGrant(ctx context.Context, id, secret string) error {
	return c.do(ctx, call{op: "revoke grant", method: http.MethodDelete, path: []string{"sandboxes", id, "grants", secret}}, nil)
}

// RestoreGrant gives back what RevokeGrant took.
func (c *Client) RestoreGrant(ctx context.Context, id, secret string) error {
	return c.do(ctx, call{op: "restore grant", method: http.MethodPut, path: []string{"sandboxes", id, "grants", secret}}, nil)
}
