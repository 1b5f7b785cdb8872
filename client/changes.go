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

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// maxChangeLine bounds one change, in bytes.
const maxChangeLine = 256 << 10

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
	const op = "follow events"
	q.Limit = 0
	ctx, cancel := context.WithCancel(ctx)
	resp, err := c.send(ctx, call{op: op, method: http.MethodGet, path: []string{"events"}, query: changeQuery(q), accept: wire.TypeNDJSON})
	if err != nil {
		cancel()
		return nil, err
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(make([]byte, 0, 4096), maxChangeLine)
	return &changes{ctx: ctx, cancel: cancel, op: op, body: resp.Body, lines: lines}, nil
}

// changes is a sandbox.ChangeStream over lines of JSON.
type changes struct {
	ctx    context.Context
	cancel context.CancelFunc
	op     string
	body   io.ReadCloser
	lines  *bufio.Scanner
	once   sync.Once
	err    error
}

func (s *changes) Recv() (c sandbox.Change, err error) {
	for s.lines.Scan() {
		line := bytes.TrimSpace(s.lines.Bytes())
		if len(line) == 0 {
			continue
		}
		var broken wire.Error
		if json.Unmarshal(line, &broken) == nil && broken.Error.Code != "" {
			return c, &sandbox.Error{Op: s.op, Err: broken.Err()}
		}
		if err = json.Unmarshal(line, &c); err == nil && c.Cursor == "" {
			err = errors.New("it has no cursor")
		}
		if err != nil {
			err = &sandbox.Error{Op: s.op, Kind: sandbox.Internal, Err: fmt.Errorf("read an event: %w", err)}
		}
		return c, err
	}
	if s.ctx.Err() != nil {
		return c, &sandbox.Error{Op: s.op, Err: context.Cause(s.ctx)}
	}
	if err = s.lines.Err(); err == nil {
		err = io.ErrUnexpectedEOF
	}
	return c, &sandbox.Error{Op: s.op, Kind: sandbox.Unavailable, Err: err, Hint: "follow again with the cursor of the last event"}
}

func (s *changes) Close() error {
	s.once.Do(func() {
		s.cancel()
		s.err = s.body.Close()
	})
	return s.err
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
