package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/berth-dev/berth/sandbox"
)

// Collect finds what nothing needs, and removes it unless dry is set.
func (c *Client) Collect(ctx context.Context, dry bool) (sandbox.Garbage, error) {
	v := url.Values{}
	if dry {
		v.Set("dry_run", "true")
	}
	var g sandbox.Garbage
	err := c.do(ctx, call{op: "collect garbage", method: http.MethodPost, path: []string{"gc"}, query: v}, &g)
	return g, err
}
