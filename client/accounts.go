package client

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// WithAccount makes a Client with the operator's key act as one of an account.
func WithAccount(id string) Option { return func(c *Client) { c.account = id } }

// CreateKey makes a key of the account. Its secret is told this once.
func (c *Client) CreateKey(ctx context.Context, req sandbox.KeyRequest) (sandbox.NewKey, error) {
	var k sandbox.NewKey
	err := c.do(ctx, call{op: "create key", method: http.MethodPost, path: []string{"keys"}, json: req}, &k)
	return k, err
}

// Keys lists the keys of the account.
func (c *Client) Keys(ctx context.Context) ([]sandbox.Key, error) {
	var all wire.Keys
	err := c.do(ctx, call{op: "list keys", method: http.MethodGet, path: []string{"keys"}}, &all)
	return all.Keys, err
}

// UpdateKey changes the label of a key of the account.
func (c *Client) UpdateKey(ctx context.Context, id string, u sandbox.KeyUpdate) (sandbox.Key, error) {
	var k sandbox.Key
	err := c.do(ctx, call{op: "update key", method: http.MethodPatch, path: []string{"keys", id}, json: u}, &k)
	return k, err
}

// RemoveKey ends a key of the account.
func (c *Client) RemoveKey(ctx context.Context, id string) error {
	return c.do(ctx, call{op: "remove key", method: http.MethodDelete, path: []string{"keys", id}}, nil)
}

// CreateAccount makes an account, for the operator.
func (c *Client) CreateAccount(ctx context.Context, req sandbox.AccountRequest) (sandbox.Account, error) {
	var a sandbox.Account
	err := c.do(ctx, call{op: "create account", method: http.MethodPost, path: []string{"accounts"}, json: req}, &a)
	return a, err
}

// Account returns an account and what it uses: the own one if id is "".
func (c *Client) Account(ctx context.Context, id string) (sandbox.Account, error) {
	path := []string{"account"}
	if id != "" {
		path = []string{"accounts", id}
	}
	var a sandbox.Account
	err := c.do(ctx, call{op: "get account", method: http.MethodGet, path: path}, &a)
	return a, err
}

// Accounts lists the accounts, for the operator.
func (c *Client) Accounts(ctx context.Context) ([]sandbox.Account, error) {
	var all wire.Accounts
	err := c.do(ctx, call{op: "list accounts", method: http.MethodGet, path: []string{"accounts"}}, &all)
	return all.Accounts, err
}

// SetQuota changes what an account may use, for the operator.
func (c *Client) SetQuota(ctx context.Context, id string, u sandbox.QuotaUpdate) (sandbox.Account, error) {
	var a sandbox.Account
	err := c.do(ctx, call{op: "change quota", method: http.MethodPatch, path: []string{"accounts", id}, json: wire.AccountUpdate{Quota: u}}, &a)
	return a, err
}

// RemoveAccount removes an account with all it has, for the operator.
func (c *Client) RemoveAccount(ctx context.Context, id string) error {
	return c.do(ctx, call{op: "remove account", method: http.MethodDelete, path: []string{"accounts", id}}, nil)
}

// Challenge is the work to do for a temporary account. It needs no key.
func (c *Client) Challenge(ctx context.Context) (sandbox.Challenge, error) {
	var ch sandbox.Challenge
	err := c.do(ctx, call{op: "get challenge", method: http.MethodGet, path: []string{"accounts", "temporary", "challenge"}}, &ch)
	return ch, err
}

// MakeTemporary makes a temporary account. It needs no key.
func (c *Client) MakeTemporary(ctx context.Context, req sandbox.TemporaryRequest) (sandbox.TemporaryAccount, error) {
	var t sandbox.TemporaryAccount
	err := c.do(ctx, call{op: "make temporary account", method: http.MethodPost, path: []string{"accounts", "temporary"}, json: req}, &t)
	return t, err
}
