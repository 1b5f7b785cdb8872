package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Policy returns what a sandbox may reach.
func (c *Client) Policy(ctx context.Context, id string) (sandbox.Policy, error) {
	var p sandbox.Policy
	err := c.do(ctx, call{op: "get policy", method: http.MethodGet, path: []string{"sandboxes", id, "policy"}}, &p)
	return p, err
}

// SetPolicy replaces what a sandbox may reach, at once and for open connections
// too. warnings name rules that add nothing.
func (c *Client) SetPolicy(ctx context.Context, id string, p sandbox.Policy) (warnings []string, err error) {
	var set wire.PolicySet
	err = c.do(ctx, call{op: "set policy", method: http.MethodPut, path: []string{"sandboxes", id, "policy"}, json: p}, &set)
	return set.Warnings, err
}

// Audit returns one page of what sandboxes did towards the outside, oldest first.
func (c *Client) Audit(ctx context.Context, q sandbox.AuditQuery) (sandbox.AuditPage, error) {
	var p sandbox.AuditPage
	err := c.do(ctx, call{op: "read audit", method: http.MethodGet, path: []string{"audit"}, query: auditQuery(q)}, &p)
	return p, err
}

func auditQuery(q sandbox.AuditQuery) url.Values {
	v := url.Values{}
	setIf(v, "after", q.After)
	setIf(v, "sandbox", q.Sandbox)
	setIf(v, "account", q.Account)
	setInt(v, "limit", int64(q.Limit))
	if q.Denied {
		v.Set("denied", "true")
	}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.UTC().Format(time.RFC3339))
	}
	for _, k := range q.Kinds {
		v.Add("kind", string(k))
	}
	return v
}

// FollowAudit streams the audit, what is to come too. A stream that breaks is
// opened again with the cursor of the last entry.
func (c *Client) FollowAudit(ctx context.Context, q sandbox.AuditQuery) (sandbox.AuditStream, error) {
	q.Limit = 0
	return follow(ctx, c, "follow audit", "audit", auditQuery(q), func(e sandbox.AuditEntry) string { return e.Cursor })
}
