package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Consumption sums up what sandboxes have used, removed ones too.
func (c *Client) Consumption(ctx context.Context, q sandbox.UsageQuery) (sandbox.UsageReport, error) {
	v := url.Values{}
	setIf(v, "sandbox", q.Sandbox)
	setIf(v, "account", q.Account)
	setIf(v, "by", string(q.By))
	setInt(v, "limit", int64(q.Limit))
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.UTC().Format(time.RFC3339))
	}
	var report sandbox.UsageReport
	err := c.do(ctx, call{op: "sum up usage", method: http.MethodGet, path: []string{"usage"}, query: v}, &report)
	return report, err
}
