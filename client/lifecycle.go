package client

import (
	"context"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Pause keeps a sandbox's memory, processes, terminals and files, and frees its
// memory.
func (c *Client) Pause(ctx context.Context, id string) (sandbox.Sandbox, error) {
	return c.change(ctx, "pause", id, nil)
}

// Resume brings a paused sandbox back as it was.
func (c *Client) Resume(ctx context.Context, id string) (sandbox.Sandbox, error) {
	return c.change(ctx, "resume", id, nil)
}

// Stop keeps a sandbox's files alone.
func (c *Client) Stop(ctx context.Context, id string) (sandbox.Sandbox, error) {
	return c.change(ctx, "stop", id, nil)
}

// Start makes a sandbox run, whether it is stopped or paused.
func (c *Client) Start(ctx context.Context, id string) (sandbox.Sandbox, error) {
	return c.change(ctx, "start", id, nil)
}

// KeepAlive keeps a running sandbox from being idle for so long.
func (c *Client) KeepAlive(ctx context.Context, id string, seconds int64) (sandbox.Sandbox, error) {
	return c.change(ctx, "keepalive", id, wire.KeepAlive{Seconds: seconds})
}

// Update changes what is kept with a sandbox, its policy and its limits.
func (c *Client) Update(ctx context.Context, id string, u sandbox.Update) (sandbox.Sandbox, error) {
	var s sandbox.Sandbox
	err := c.do(ctx, call{op: "update", method: http.MethodPatch, path: []string{"sandboxes", id}, json: u}, &s)
	return s, err
}

// change calls a verb on a whole sandbox.
func (c *Client) change(ctx context.Context, verb, id string, body any) (sandbox.Sandbox, error) {
	var s sandbox.Sandbox
	err := c.do(ctx, call{op: verb, method: http.MethodPost, path: []string{"sandboxes", id, verb}, json: body}, &s)
	return s, err
}
