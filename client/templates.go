package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// BuildTemplate builds a template and calls progress, if it is not nil, for each
// step, from one goroutine. The build ends when ctx does.
func (c *Client) BuildTemplate(ctx context.Context, req sandbox.BuildRequest, progress func(sandbox.Progress)) (sandbox.Template, error) {
	const op = "build template"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	resp, err := c.send(ctx, call{op: op, method: http.MethodPost, path: []string{"templates"}, json: req, accept: wire.TypeSSE})
	if err != nil {
		return sandbox.Template{}, err
	}
	defer resp.Body.Close()
	t, err := followBuild(wire.NewSSEReader(resp.Body), progress)
	if err == nil {
		return t, nil
	}
	var se *sandbox.Error
	if errors.As(err, &se) && se.Op == "" { // the server's own, which names the operation
		return t, err
	}
	return t, sendError(ctx, op, err)
}

// followBuild reads events up to the one that ends the build.
func followBuild(events *wire.SSEReader, progress func(sandbox.Progress)) (t sandbox.Template, err error) {
	for {
		name, data, err := events.Next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return t, err
		}
		switch name {
		case wire.EventProgress:
			var p sandbox.Progress
			if err := json.Unmarshal(data, &p); err != nil {
				return t, err
			}
			if progress != nil {
				progress(p)
			}
		case wire.EventDone:
			return t, json.Unmarshal(data, &t)
		case wire.EventError:
			var e wire.Error
			if err := json.Unmarshal(data, &e); err != nil {
				return t, err
			}
			return t, e.Err()
		}
	}
}

// Templates lists the templates by name.
func (c *Client) Templates(ctx context.Context) ([]sandbox.Template, error) {
	var out wire.Templates
	err := c.do(ctx, call{op: "list templates", method: http.MethodGet, path: []string{"templates"}}, &out)
	return out.Templates, err
}

// Template returns one template by name, or NotFound.
func (c *Client) Template(ctx context.Context, name string) (sandbox.Template, error) {
	var t sandbox.Template
	err := c.do(ctx, call{op: "get template", method: http.MethodGet, path: []string{"templates", name}}, &t)
	return t, err
}

// RemoveTemplate removes a template that no sandbox uses.
func (c *Client) RemoveTemplate(ctx context.Context, name string) error {
	return c.do(ctx, call{op: "remove template", method: http.MethodDelete, path: []string{"templates", name}}, nil)
}

// PutContext sends a tar stream, packed with gzip or not, that a build copies from,
// and returns the digest to name it by, unless it is given a name.
func (c *Client) PutContext(ctx context.Context, name string, body io.Reader) (digest string, size int64, err error) {
	var got wire.Context
	v := url.Values{}
	setIf(v, "name", name)
	err = c.do(ctx, call{op: "upload context", method: http.MethodPost, path: []string{"contexts"}, query: v, body: body}, &got)
	return got.Digest, got.Size, err
}

// HasContext reports whether a context is there already.
func (c *Client) HasContext(ctx context.Context, name string) (bool, error) {
	err := c.do(ctx, call{op: "look for context", method: http.MethodGet, path: []string{"contexts", name}}, &wire.Context{})
	if sandbox.KindOf(err) == sandbox.NotFound {
		return false, nil
	}
	return err == nil, err
}

// StartBuild begins a build that goes on by itself.
func (c *Client) StartBuild(ctx context.Context, id string, req sandbox.BuildRequest) (b sandbox.Build, err error) {
	body := struct {
		ID string `json:"id,omitempty"`
		sandbox.BuildRequest
	}{id, req}
	err = c.do(ctx, call{op: "start build", method: http.MethodPost, path: []string{"builds"}, json: body}, &b)
	return b, err
}

// GetBuild tells how a build goes, with the lines after the first so many.
func (c *Client) GetBuild(ctx context.Context, id string, after int) (b sandbox.Build, err error) {
	v := url.Values{"after": {strconv.Itoa(after)}}
	err = c.do(ctx, call{op: "get build", method: http.MethodGet, path: []string{"builds", id}, query: v}, &b)
	return b, err
}

// CancelBuild ends a build.
func (c *Client) CancelBuild(ctx context.Context, id string) error {
	return c.do(ctx, call{op: "cancel build", method: http.MethodDelete, path: []string{"builds", id}}, nil)
}
