// Package client speaks to a Berth server. Its Client has the same verbs, with
// the same types and errors, as the engine inside the server.
package client

import (
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// DefaultURL is where a server listens that was told nothing else.
const DefaultURL = "http://127.0.0.1:7070"

// Client is one server, seen from outside. Its methods may be called at once
// from many goroutines. Every error is a *sandbox.Error or wraps the context's.
type Client struct {
	base *url.URL
	bad  error // what is wrong with the URL; every call returns it
	key  string
	http *http.Client

	account string // that the operator acts for; "" means none
}

// Option changes how a Client works.
type Option func(*Client)

// WithHTTPClient makes the Client send its requests through c, which should
// have no overall timeout: a process may run for days.
func WithHTTPClient(c *http.Client) Option { return func(cl *Client) { cl.http = c } }

// New returns a Client of the server at base ("" means DefaultURL), with an API
// key. It does not connect; a malformed URL is the error of every call.
func New(base, key string, opts ...Option) *Client {
	if base == "" {
		base = DefaultURL
	}
	c := &Client{key: key, http: &http.Client{Transport: transport()}}
	u, err := url.Parse(strings.TrimSuffix(base, "/"))
	switch {
	case err != nil:
		c.bad = &sandbox.Error{Op: "parse server address", Kind: sandbox.Invalid, Err: err, Hint: urlHint}
	case (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
		c.bad = &sandbox.Error{Op: "parse server address", Kind: sandbox.Invalid, Err: errNotURL(base), Hint: urlHint}
	}
	c.base = u
	for _, o := range opts {
		o(c)
	}
	return c
}

const urlHint = "an address looks like " + DefaultURL

// Close lets go of idle connections. The Client remains usable.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// transport bounds the making of a connection and nothing after it.
func transport() *http.Transport {
	dial := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dial.DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 16,
		IdleConnTimeout:     60 * time.Second,
		DisableCompression:  true, // a file's bytes are passed as they are
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
	}
}
