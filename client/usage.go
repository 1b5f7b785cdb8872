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

// History returns what a sandbox used in the last day while it ran, the oldest sample
// first.
func (c *Client) History(ctx context.Context, id string, q sandbox.HistoryQuery) ([]sandbox.Sample, error) {
	v := url.Values{}
	setInt(v, "step", int64(q.Step/time.Second))
	for name, t := range map[string]time.Time{"from": q.From, "to": q.To} {
		if !t.IsZero() {
			v.Set(name, t.UTC().Format(time.RFC3339Nano))
		}
	}
	var got struct {
		Samples []sandbox.Sample `json:"samples"`
	}
	err := c.do(ctx, call{op: "read history", method: http.MethodGet, path: []string{"sandboxes", id, "metrics"}, query: v}, &got)
	return got.Samples, err
}
