package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// FindFiles lists what lies beneath a folder and matches a pattern, and says
// whether there is more.
func (c *Client) FindFiles(ctx context.Context, id string, q sandbox.FindQuery) ([]sandbox.FileInfo, bool, error) {
	const op = "find files"
	if q.Glob == "" {
		return nil, false, sandbox.Errorf(op, sandbox.Invalid, "there is no pattern")
	}
	v := url.Values{"path": {q.Path}, "glob": {q.Glob}}
	setInt(v, "depth", int64(q.Depth))
	setInt(v, "limit", int64(q.Limit))
	setIf(v, "after", q.After)
	var out wire.Files
	err := c.do(ctx, call{op: op, method: http.MethodGet, path: filesPath(id, "list"), query: v}, &out)
	return out.Entries, out.More, err
}

// ChangeFile sets mode, owner or time of an entry, or makes an empty file.
func (c *Client) ChangeFile(ctx context.Context, id, path string, ch sandbox.FileChange) (sandbox.FileInfo, error) {
	var fi sandbox.FileInfo
	err := c.do(ctx, call{op: "change file", method: http.MethodPost, path: filesPath(id, "change"),
		json: wire.FileChange{Path: path, PathB64: sandbox.Raw(path), Mode: ch.Mode, Owner: ch.Owner, Modified: ch.Modified,
			Recursive: ch.Recursive, Create: ch.Create, User: ch.User}}, &fi)
	return fi, err
}

// CopyFile copies an entry to another path of the same sandbox.
func (c *Client) CopyFile(ctx context.Context, id, from, to string, o sandbox.CopyOptions) (sandbox.FileInfo, error) {
	var fi sandbox.FileInfo
	err := c.do(ctx, call{op: "copy file", method: http.MethodPost, path: filesPath(id, "copy"),
		json: wire.CopyFile{From: from, FromB64: sandbox.Raw(from), To: to, ToB64: sandbox.Raw(to), Recursive: o.Recursive, Replace: o.Replace}}, &fi)
	return fi, err
}

// LinkFile makes a symbolic link that says target.
func (c *Client) LinkFile(ctx context.Context, id, path, target string, replace bool) (sandbox.FileInfo, error) {
	var fi sandbox.FileInfo
	err := c.do(ctx, call{op: "link file", method: http.MethodPost, path: filesPath(id, "link"),
		json: wire.LinkFile{Path: path, PathB64: sandbox.Raw(path), Target: target, TargetB64: sandbox.Raw(target), Replace: replace}}, &fi)
	return fi, err
}

// HashFile tells the SHA-256 of a file's bytes, which do not leave the sandbox.
func (c *Client) HashFile(ctx context.Context, id, path string) (sandbox.FileHash, error) {
	var h sandbox.FileHash
	err := c.do(ctx, call{op: "hash file", method: http.MethodGet, path: filesPath(id, "hash"), query: url.Values{"path": {path}}}, &h)
	return h, err
}

// FileAttributes gives the extended attributes of an entry.
func (c *Client) FileAttributes(ctx context.Context, id, path string) (sandbox.Attributes, error) {
	var out wire.Attributes
	err := c.do(ctx, call{op: "read attributes", method: http.MethodGet, path: filesPath(id, "attributes"), query: url.Values{"path": {path}}}, &out)
	return out.All(), err
}

// SetFileAttributes changes extended attributes and gives all there are then.
func (c *Client) SetFileAttributes(ctx context.Context, id, path string, ch sandbox.AttributeChange) (sandbox.Attributes, error) {
	split := wire.AttributesOf(ch.Set)
	var out wire.Attributes
	err := c.do(ctx, call{op: "set attributes", method: http.MethodPost, path: filesPath(id, "attributes"),
		json: wire.SetAttributes{Path: path, PathB64: sandbox.Raw(path), Set: split.Attributes, SetB64: split.AttributesB64, Remove: ch.Remove}}, &out)
	return out.All(), err
}

// Archive opens a tar stream of what a folder holds, or of one file. The caller
// closes it. What it holds is the sandbox's word and not to be trusted.
func (c *Client) Archive(ctx context.Context, id, path string, o sandbox.ArchiveOptions) (io.ReadCloser, error) {
	v := url.Values{"path": {path}}
	setBool(v, "gzip", o.Gzip)
	resp, err := c.send(ctx, call{op: "archive", method: http.MethodGet, path: filesPath(id, "archive"), query: v, accept: "*/*"})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Unpack turns a tar stream, plain or in gzip, into what a folder holds.
func (c *Client) Unpack(ctx context.Context, id, path string, o sandbox.UnpackOptions, body io.Reader) (sandbox.Unpacked, error) {
	v := url.Values{"path": {path}}
	setIf(v, "user", o.User)
	setBool(v, "keep_owner", o.KeepOwner)
	var u sandbox.Unpacked
	err := c.do(ctx, call{op: "unpack", method: http.MethodPut, path: filesPath(id, "archive"), query: v, body: body}, &u)
	return u, err
}

// Signed is a URL that opens one file without a key.
type Signed struct {
	URL     string // whole, with the server's address as this client knows it
	Expires time.Time
}

// SignRead makes a URL under which GET reads a file. life 0 means an hour, at
// most 7 days are taken; maxBytes 0 means a file of any size.
func (c *Client) SignRead(ctx context.Context, id, path string, life time.Duration, maxBytes int64) (Signed, error) {
	return c.sign(ctx, id, wire.SignFile{Path: path, Method: wire.SignRead, MaxBytes: maxBytes}, life)
}

// SignWrite makes a URL under which PUT writes a file, of maxBytes at most.
func (c *Client) SignWrite(ctx context.Context, id, path string, life time.Duration, maxBytes int64) (Signed, error) {
	return c.sign(ctx, id, wire.SignFile{Path: path, Method: wire.SignWrite, MaxBytes: maxBytes}, life)
}

func (c *Client) sign(ctx context.Context, id string, req wire.SignFile, life time.Duration) (Signed, error) {
	const op = "sign URL"
	if life < 0 || life > 0 && life < time.Second {
		return Signed{}, sandbox.Errorf(op, sandbox.Invalid, "a life of %v is too short", life)
	}
	req.PathB64, req.ExpiresSeconds = sandbox.Raw(req.Path), int64(life/time.Second)
	var out wire.SignedURL
	if err := c.do(ctx, call{op: op, method: http.MethodPost, path: filesPath(id, "sign"), json: req}, &out); err != nil {
		return Signed{}, err
	}
	u, err := url.Parse(out.URL)
	if err != nil || u.Host != "" || u.Scheme != "" {
		return Signed{}, sandbox.Errorf(op, sandbox.Unavailable, "the answer holds no URL")
	}
	whole := c.base.JoinPath(u.Path)
	whole.RawQuery = u.RawQuery
	return Signed{URL: whole.String(), Expires: out.Expires}, nil
}
