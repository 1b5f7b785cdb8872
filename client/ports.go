package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
	"github.com/berth-dev/berth/tunnel"
)

// Ports lists what listens in a sandbox, and what of it is shared.
func (c *Client) Ports(ctx context.Context, id string) ([]sandbox.Port, error) {
	var out wire.Ports
	err := c.do(ctx, call{op: "list ports", method: http.MethodGet, path: []string{"sandboxes", id, "ports"}}, &out)
	return out.Ports, err
}

// Share gives a way to a port from outside, and may change who has one.
func (c *Client) Share(ctx context.Context, id string, port int, r sandbox.ShareRequest) (out sandbox.Share, err error) {
	err = c.do(ctx, call{op: "share port", method: http.MethodPost, path: portPath(id, port, "share"), json: r}, &out)
	return out, err
}

func portPath(id string, port int, verb string) []string {
	return []string{"sandboxes", id, "ports", strconv.Itoa(port), verb}
}

// Dial opens a connection to a port of a sandbox, which it wakes, through the
// server. The connection outlives ctx, has a CloseWrite and no deadlines.
func (c *Client) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	op := fmt.Sprintf("connect to port %d", port)
	req, err := c.request(ctx, call{op: op, method: http.MethodGet, path: portPath(id, port, "tunnel")})
	if err != nil {
		return nil, err
	}
	ws, resp, err := websocket.Dial(ctx, req.URL.String(), &websocket.DialOptions{HTTPClient: c.http, HTTPHeader: req.Header,
		Subprotocols: []string{tunnel.Protocol}})
	switch {
	case err == nil:
		return tunnel.New(ws), nil
	case resp != nil && resp.StatusCode >= 400:
		return nil, answerError(op, resp)
	}
	return nil, sendError(ctx, op, err)
}

// AddDomain claims a domain for a port, or lets it stand for another one.
func (c *Client) AddDomain(ctx context.Context, r sandbox.DomainRequest) (d sandbox.Domain, err error) {
	err = c.do(ctx, call{op: "add domain", method: http.MethodPost, path: []string{"domains"}, json: r}, &d)
	return d, err
}

// VerifyDomain looks whether a domain's owner has proved to have it.
func (c *Client) VerifyDomain(ctx context.Context, name string) (d sandbox.Domain, err error) {
	err = c.do(ctx, call{op: "verify domain", method: http.MethodPost, path: []string{"domains", name, "verify"}}, &d)
	return d, err
}

// Domains lists the account's domains.
func (c *Client) Domains(ctx context.Context) ([]sandbox.Domain, error) {
	var out wire.Domains
	err := c.do(ctx, call{op: "list domains", method: http.MethodGet, path: []string{"domains"}}, &out)
	return out.Domains, err
}

// Domain returns one of them.
func (c *Client) Domain(ctx context.Context, name string) (d sandbox.Domain, err error) {
	err = c.do(ctx, call{op: "get domain", method: http.MethodGet, path: []string{"domains", name}}, &d)
	return d, err
}

// RemoveDomain gives one up.
func (c *Client) RemoveDomain(ctx context.Context, name string) error {
	return c.do(ctx, call{op: "remove domain", method: http.MethodDelete, path: []string{"domains", name}}, nil)
}
