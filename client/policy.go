package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
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
	const op = "follow audit"
	q.Limit = 0
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.send(ctx, call{op: op, method: http.MethodGet, path: []string{"audit"}, query: auditQuery(q), accept: wire.TypeNDJSON})
	if err != nil {
		cancel()
		return nil, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4096), maxChangeLine)
	return &auditStream{ctx: ctx, cancel: cancel, op: op, body: resp.Body, lines: lines}, nil
}

// auditStream is a sandbox.AuditStream over lines of JSON.
type auditStream struct {
	ctx    context.Context
	cancel context.CancelFunc
	op     string
	body   io.ReadCloser
	lines  *bufio.Scanner
	once   sync.Once
	err    error
}

func (s *auditStream) Recv() (e sandbox.AuditEntry, err error) {
	for s.lines.Scan() {
		line := bytes.TrimSpace(s.lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var broken wire.Error
		if json.Unmarshal(line, &broken) == nil && broken.Error.Code != "" {
			return e, &sandbox.Error{Op: s.op, Err: broken.Err()}
		}
		if err = json.Unmarshal(line, &e); err == nil && e.Cursor == "" {
			err = errors.New("it has no cursor")
		}
		if err != nil {
			err = &sandbox.Error{Op: s.op, Kind: sandbox.Internal, Err: fmt.Errorf("read an entry: %w", err)}
		}
		return e, err
	}
	if s.ctx.Err() != nil {
		return e, &sandbox.Error{Op: s.op, Err: context.Cause(s.ctx)}
	}
	if err = s.lines.Err(); err == nil {
		err = io.ErrUnexpectedEOF
	}
	return e, &sandbox.Error{Op: s.op, Kind: sandbox.Unavailable, Err: err, Hint: "follow again with the cursor of the last entry"}
}

func (s *auditStream) Close() error {
	s.once.Do(func() {
		s.cancel()
		s.err = s.body.Close()
	})
	return s.err
}
