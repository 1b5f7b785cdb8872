package guestclient

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/sandbox"
)

// Archive opens a tar stream of what a folder holds, or of the one file that
// path names. A stream that breaks off ends with an error other than io.EOF. Its
// names and links are the guest's and not to be trusted.
func (c *Client) Archive(ctx context.Context, path string, o sandbox.ArchiveOptions) (io.ReadCloser, error) {
	op := "archive " + text(path, maxText)
	if err := sandbox.CheckPath(path); err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	q := url.Values{"path": {path}, "gzip": {strconv.FormatBool(o.Gzip)}, "exclude": o.Excludes}
	req, err := bodyRequest(ctx, op, http.MethodGet, archiveRoute, q, nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.bodyCall(ctx, op, req)
	if err != nil {
		return nil, err
	}
	if heeded := resp.Header.Get(guestapi.ExcludesHeader); len(o.Excludes) > 0 && heeded != strconv.Itoa(len(o.Excludes)) {
		return nil, errors.Join(&sandbox.Error{Op: op, Kind: sandbox.Unsupported, Err: errors.New("its guest is too old to leave something out"),
			Hint: "stop the sandbox and start it again: it gets a guest of this version"}, resp.Body.Close())
	}
	return &fileBody{ctx: ctx, op: op, in: resp.Body}, nil
}

// Unpack turns a tar stream, plain or in gzip, into what the folder at path
// holds; the folder is made if it is missing. An error leaves what was unpacked
// before it; one of body's is returned wrapped.
func (c *Client) Unpack(ctx context.Context, path string, o sandbox.UnpackOptions, body io.Reader) (sandbox.Unpacked, error) {
	op := "unpack into " + text(path, maxText)
	var none sandbox.Unpacked
	if err := sandbox.CheckPath(path); err != nil {
		return none, &sandbox.Error{Op: op, Err: err}
	}
	q := url.Values{"path": {path}, "user": {o.User}, "keep_owner": {strconv.FormatBool(o.KeepOwner)}}
	data, err := c.upload(ctx, op, http.MethodPut, archiveRoute, q, body)
	if err != nil {
		return none, err
	}
	var u guestapi.Unpacked
	if err := json.Unmarshal(data, &u); err != nil || min(u.Files, u.Folders, u.Links, u.Bytes) < 0 {
		return none, broken(op, "the counts %.200q", data)
	}
	return sandbox.Unpacked(u), nil
}
