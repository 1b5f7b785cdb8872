package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Stat describes a path; follow says whether a symbolic link is followed.
func (c *Client) Stat(ctx context.Context, id, path string, follow bool) (sandbox.FileInfo, error) {
	v := url.Values{"path": {path}}
	setBool(v, "follow", follow)
	var fi sandbox.FileInfo
	err := c.do(ctx, call{op: "stat", method: http.MethodGet, path: filesPath(id, "stat"), query: v}, &fi)
	return fi, err
}

// ListDir lists a directory down to depth (1: its entries alone), at most limit
// entries after the path "after", and says whether more follow.
func (c *Client) ListDir(ctx context.Context, id, path string, depth, limit int, after string) ([]sandbox.FileInfo, bool, error) {
	v := url.Values{"path": {path}}
	setInt(v, "depth", int64(depth))
	setInt(v, "limit", int64(limit))
	setIf(v, "after", after)
	var out wire.Files
	err := c.do(ctx, call{op: "list directory", method: http.MethodGet, path: filesPath(id, "list"), query: v}, &out)
	return out.Entries, out.More, err
}

// MakeDir makes a directory; parents also makes those above it, and then one
// that is there is no error.
func (c *Client) MakeDir(ctx context.Context, id, path string, mode uint32, user string, parents bool) (sandbox.FileInfo, error) {
	var fi sandbox.FileInfo
	err := c.do(ctx, call{op: "make directory", method: http.MethodPost, path: filesPath(id, "mkdir"),
		json: wire.MakeDir{Path: path, PathB64: sandbox.Raw(path), Mode: mode, User: user, Parents: parents}}, &fi)
	return fi, err
}

// Move renames a path; replace lets it take the place of what is there.
func (c *Client) Move(ctx context.Context, id, from, to string, replace bool) error {
	return c.do(ctx, call{op: "move", method: http.MethodPost, path: filesPath(id, "move"),
		json: wire.Move{From: from, FromB64: sandbox.Raw(from), To: to, ToB64: sandbox.Raw(to), Replace: replace}}, nil)
}

// RemoveFile removes a path; recursive also removes what a directory holds.
func (c *Client) RemoveFile(ctx context.Context, id, path string, recursive bool) error {
	v := url.Values{"path": {path}}
	setBool(v, "recursive", recursive)
	return c.do(ctx, call{op: "remove file", method: http.MethodDelete, path: filesPath(id), query: v}, nil)
}

// ReadFile opens a file's bytes, or a part of them. The caller closes them; an
// end that comes too early is io.ErrUnexpectedEOF, never io.EOF.
func (c *Client) ReadFile(ctx context.Context, id, path string, r sandbox.ReadRange) (io.ReadCloser, sandbox.FileInfo, error) {
	q := call{op: "read file", method: http.MethodGet, path: filesPath(id), query: url.Values{"path": {path}},
		accept: "application/octet-stream"}
	switch {
	case r.Offset < 0 || r.Length < 0:
		return nil, sandbox.FileInfo{}, sandbox.Errorf(q.op, sandbox.Invalid, "the range %d+%d is negative", r.Offset, r.Length)
	case r.Length > 0:
		q.rng = fmt.Sprintf("bytes=%d-%d", r.Offset, r.Offset+r.Length-1)
	case r.Offset > 0:
		q.rng = fmt.Sprintf("bytes=%d-", r.Offset)
	}
	resp, err := c.send(ctx, q)
	if err != nil {
		return nil, sandbox.FileInfo{}, err
	}
	var fi sandbox.FileInfo
	if err := json.Unmarshal([]byte(resp.Header.Get(wire.HeaderFileInfo)), &fi); err != nil {
		resp.Body.Close()
		return nil, fi, &sandbox.Error{Op: q.op, Kind: sandbox.Unavailable, Err: fmt.Errorf("read %s: %w", wire.HeaderFileInfo, err)}
	}
	return resp.Body, fi, nil
}

// WriteFile writes a file from what body gives, whole or not at all.
func (c *Client) WriteFile(ctx context.Context, id, path string, o sandbox.WriteOptions, body io.Reader) (sandbox.FileInfo, error) {
	v := url.Values{"path": {path}}
	setIf(v, "user", o.User)
	setBool(v, "parents", o.Parents)
	setBool(v, "in_place", o.InPlace)
	setBool(v, "append", o.Append)
	if o.At != nil {
		v.Set("at", strconv.FormatInt(*o.At, 10))
	}
	if o.Mode != 0 {
		v.Set("mode", "0"+strconv.FormatUint(uint64(o.Mode), 8))
	}
	var fi sandbox.FileInfo
	err := c.do(ctx, call{op: "write file", method: http.MethodPut, path: filesPath(id), query: v, body: body}, &fi)
	return fi, err
}

func filesPath(id string, more ...string) []string {
	return append([]string{"sandboxes", id, "files"}, more...)
}
