package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Bounds on what is taken from a server.
const (
	maxAnswer    = 64 << 20 // bytes of a JSON answer
	maxErrorBody = 1 << 20
)

// call is one request.
type call struct {
	op     string // for errors
	method string
	path   []string // segments, not escaped
	query  url.Values
	json   any       // body, if not nil
	body   io.Reader // body, if json is nil
	length int64     // of body; 0 means unknown
	accept string    // "" means JSON
	rng    string    // Range header
}

// send makes the request and returns an answer of status 2xx; any other is
// turned into an error.
func (c *Client) send(ctx context.Context, q call) (*http.Response, error) {
	req, err := c.request(ctx, q)
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, sendError(ctx, q.op, err)
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		return nil, answerError(q.op, resp)
	}
	return resp, nil
}

// do makes the request and decodes the JSON answer into out, unless that is nil.
func (c *Client) do(ctx context.Context, q call, out any) error {
	_, err := c.answer(ctx, q, out)
	return err
}

// answer is do that gives the answer's status.
func (c *Client) answer(ctx context.Context, q call, out any) (status int, err error) {
	resp, err := c.send(ctx, q)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxErrorBody))
	} else {
		err = json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out)
	}
	if err != nil {
		return 0, sendError(ctx, q.op, err)
	}
	return resp.StatusCode, nil
}

func (c *Client) request(ctx context.Context, q call) (*http.Request, error) {
	if c.bad != nil {
		return nil, c.bad
	}
	body := q.body
	if q.json != nil {
		b, err := json.Marshal(q.json)
		if err != nil {
			return nil, &sandbox.Error{Op: q.op, Kind: sandbox.Invalid, Err: err}
		}
		body = bytes.NewReader(b)
	}
	escaped := make([]string, len(q.path))
	for i, s := range q.path {
		if s == "" || s == "." || s == ".." {
			return nil, sandbox.Errorf(q.op, sandbox.Invalid, "%q is not a name", s)
		}
		escaped[i] = url.PathEscape(s)
	}
	u := c.base.JoinPath(append([]string{"v1"}, escaped...)...)
	u.RawQuery = q.query.Encode()
	req, err := http.NewRequestWithContext(ctx, q.method, u.String(), body)
	if err != nil {
		return nil, &sandbox.Error{Op: q.op, Kind: sandbox.Invalid, Err: err}
	}
	if q.length > 0 {
		req.ContentLength = q.length
	}
	c.headers(req, q)
	return req, nil
}

func (c *Client) headers(req *http.Request, q call) {
	if c.key != "" {
		req.Header.Set("Authorization", "Bearer "+c.key)
	}
	if c.account != "" {
		req.Header.Set(wire.HeaderAccount, c.account)
	}
	req.Header.Set("User-Agent", "berth")
	accept := q.accept
	if accept == "" {
		accept = wire.TypeJSON
	}
	req.Header.Set("Accept", accept)
	switch {
	case q.json != nil:
		req.Header.Set("Content-Type", wire.TypeJSON)
	case q.body != nil:
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	if q.rng != "" {
		req.Header.Set("Range", q.rng)
	}
}

// answerError reads the error form from an answer. An answer that has another
// form comes from something else than a Berth server.
func answerError(op string, resp *http.Response) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
	var body wire.Error
	if err == nil && json.Unmarshal(b, &body) == nil && body.Error.Code != "" {
		return body.Err()
	}
	return &sandbox.Error{Op: op, Kind: sandbox.Unavailable,
		Err:  fmt.Errorf("the answer is %s, without Berth's error form", resp.Status),
		Hint: "check that the address is a Berth server's"}
}

// sendError explains a request that got no whole answer.
func sendError(ctx context.Context, op string, err error) error {
	if ctx.Err() != nil {
		return &sandbox.Error{Op: op, Err: context.Cause(ctx)}
	}
	var se *sandbox.Error
	if errors.As(err, &se) { // a body's own error
		return &sandbox.Error{Op: op, Err: err}
	}
	e := &sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: err}
	var dial *net.OpError
	var uerr *url.Error
	if errors.As(err, &uerr) {
		e.Err = uerr.Err // without the whole URL
	}
	if errors.As(err, &dial) && dial.Op == "dial" {
		e.Hint = "start a server with: berth serve"
	}
	return e
}

func errNotURL(s string) error { return fmt.Errorf("%.200q is not an http or https address", s) }
