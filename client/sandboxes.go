package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berth-dev/berth/sandbox"
)

// Create makes a sandbox and returns once it runs.
func (c *Client) Create(ctx context.Context, req sandbox.CreateRequest) (sandbox.Sandbox, error) {
	var s sandbox.Sandbox
	err := c.do(ctx, call{op: "create", method: http.MethodPost, path: []string{"sandboxes"}, json: req}, &s)
	return s, err
}

// Get returns one sandbox, or NotFound.
func (c *Client) Get(ctx context.Context, id string) (sandbox.Sandbox, error) {
	var s sandbox.Sandbox
	err := c.do(ctx, call{op: "get", method: http.MethodGet, path: []string{"sandboxes", id}}, &s)
	return s, err
}

// List returns one page of sandboxes, newest first.
func (c *Client) List(ctx context.Context, q sandbox.ListQuery) (sandbox.Page, error) {
	v := url.Values{}
	for _, s := range q.States {
		v.Add("state", string(s))
	}
	for k, val := range q.Metadata {
		v.Set("metadata."+k, val)
	}
	for _, tag := range q.Tags {
		v.Add("tag", tag)
	}
	setIf(v, "name", q.Name)
	setIf(v, "template", q.Template)
	setIf(v, "after", q.After)
	setInt(v, "limit", int64(q.Limit))
	var p sandbox.Page
	err := c.do(ctx, call{op: "list", method: http.MethodGet, path: []string{"sandboxes"}, query: v}, &p)
	return p, err
}

// Remove ends a sandbox and deletes all of it.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.do(ctx, call{op: "remove", method: http.MethodDelete, path: []string{"sandboxes", id}}, nil)
}

// Status returns what the server says of itself.
func (c *Client) Status(ctx context.Context) (sandbox.Status, error) {
	var s sandbox.Status
	err := c.do(ctx, call{op: "status", method: http.MethodGet, path: []string{"status"}}, &s)
	return s, err
}

func setIf(v url.Values, name, value string) {
	if value != "" {
		v.Set(name, value)
	}
}

func setInt(v url.Values, name string, value int64) {
	if value != 0 {
		v.Set(name, strconv.FormatInt(value, 10))
	}
}

func setBool(v url.Values, name string, value bool) {
	if value {
		v.Set(name, "true")
	}
}
