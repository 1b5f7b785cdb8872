package guestclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/berth-dev/berth/guestapi"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// ReadFile opens a regular file, or a part of one. ctx bounds the whole body; a
// body that breaks off ends with an error other than io.EOF. The info describes
// the whole file.
func (c *Client) ReadFile(ctx context.Context, path string, r sandbox.ReadRange) (io.ReadCloser, sandbox.FileInfo, error) {
	op := "read file " + text(path, maxText)
	if err := sandbox.CheckPath(path); err != nil {
		return nil, sandbox.FileInfo{}, &sandbox.Error{Op: op, Err: err}
	}
	if r.Offset < 0 || r.Length < 0 {
		return nil, sandbox.FileInfo{}, sandbox.Errorf(op, sandbox.Invalid, "the range %d+%d is negative", r.Offset, r.Length)
	}
	q := url.Values{"path": {path}, "offset": {strconv.FormatInt(r.Offset, 10)}, "length": {strconv.FormatInt(r.Length, 10)}}
	way := c.carry()
	resp, err := c.download(ctx, op, q, way != nil)
	if err != nil {
		giveBack(way)
		return nil, sandbox.FileInfo{}, err
	}
	info, err := decodeInfo([]byte(resp.Header.Get(guestapi.FileInfoHeader)))
	var past *carriedBody
	if err == nil && way != nil {
		past, err = lent(resp.Header, r)
	}
	if err != nil {
		giveBack(way)
		resp.Body.Close()
		return nil, info, broken(op, "%w", err)
	}
	if past == nil {
		giveBack(way)
		return &fileBody{ctx: ctx, op: op, in: resp.Body}, info, nil
	}
	past.op, past.way, past.hold = op, way, resp.Body
	past.ctx, past.cancel = context.WithCancel(ctx)
	past.again = func(rest sandbox.ReadRange) (io.ReadCloser, error) {
		q.Set("offset", strconv.FormatInt(rest.Offset, 10))
		q.Set("length", strconv.FormatInt(rest.Length, 10))
		resp, err := c.download(ctx, op, q, false)
		if err != nil {
			return nil, err
		}
		return &fileBody{ctx: ctx, op: op, in: resp.Body}, nil
	}
	return past, info, nil
}

// download asks for a file; past offers a way past the link for it.
func (c *Client) download(ctx context.Context, op string, q url.Values, past bool) (*http.Response, error) {
	req, err := bodyRequest(ctx, op, http.MethodGet, filesRoute, q, nil)
	if err != nil {
		return nil, err
	}
	if past {
		req.Header.Set(guestapi.CarryHeader, "1")
	}
	return c.bodyCall(ctx, op, req)
}

// WriteFile stores what body gives under path, whole or not at all. An error of
// body's is returned wrapped.
func (c *Client) WriteFile(ctx context.Context, path string, o sandbox.WriteOptions, body io.Reader) (sandbox.FileInfo, error) {
	op := "write file " + text(path, maxText)
	if err := sandbox.CheckPath(path); err != nil {
		return sandbox.FileInfo{}, &sandbox.Error{Op: op, Err: err}
	}
	q := url.Values{"path": {path}, "user": {o.User}, "mode": {strconv.FormatUint(uint64(o.Mode), 8)},
		"parents": {strconv.FormatBool(o.Parents)}}
	method := http.MethodPut
	switch {
	case o.Append && o.At != nil:
		return sandbox.FileInfo{}, sandbox.Errorf(op, sandbox.Invalid, "the bytes are to be added and to be written at %d", *o.At)
	case o.InPlace && (o.Append || o.At != nil):
		return sandbox.FileInfo{}, sandbox.Errorf(op, sandbox.Invalid, "the bytes are to take the place of the file's, and to be written beside them")
	case o.InPlace:
		method = http.MethodPatch
		q.Set("in_place", "true")
	case o.Append:
		method = http.MethodPatch
		q.Set("append", "true")
	case o.At != nil:
		if *o.At < 0 {
			return sandbox.FileInfo{}, sandbox.Errorf(op, sandbox.Invalid, "the place %d is negative", *o.At)
		}
		method = http.MethodPatch
		q.Set("at", strconv.FormatInt(*o.At, 10))
	}
	data, err := c.upload(ctx, op, method, filesRoute, q, body)
	if err != nil {
		return sandbox.FileInfo{}, err
	}
	info, err := decodeInfo(data)
	if err != nil {
		return info, broken(op, "%w", err)
	}
	return info, nil
}

// The guest's routes for bodies.
const (
	filesRoute   = "/files"
	archiveRoute = "/archive"
)

// upload sends a body and returns the guest's answer to it.
func (c *Client) upload(ctx context.Context, op, method, route string, q url.Values, body io.Reader) ([]byte, error) {
	source := &bodySource{in: body}
	defer source.Close()
	req, err := bodyRequest(ctx, op, method, route, q, source)
	if err != nil {
		return nil, err
	}
	if route == filesRoute && (method == http.MethodPut || q.Get("in_place") == "true") {
		if way := c.carry(); way != nil {
			source.way, req = offer(req, way)
			defer source.way.end()
		}
	}
	resp, err := c.bodyCall(ctx, op, req)
	if err != nil {
		if own := source.failure(); own != nil {
			err = &sandbox.Error{Op: op, Err: fmt.Errorf("read the body: %w", own)}
		}
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxHeader))
	if err != nil {
		return nil, unreached(ctx, op, err)
	}
	return data, nil
}

// bodyRequest makes a request of the routes for bodies.
func bodyRequest(ctx context.Context, op, method, route string, q url.Values, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, origin+route+"?"+q.Encode(), body)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Internal, Err: err}
	}
	if body != nil {
		req.Header.Set("Expect", "100-continue") // a refusal comes before the body
	}
	return req, nil
}

// bodyCall makes a request and reads its error, if the answer is one.
func (c *Client) bodyCall(ctx context.Context, op string, req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, unreached(ctx, op, err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxHeader))
	if err != nil {
		return nil, unreached(ctx, op, err)
	}
	return nil, decodeError(op, resp.StatusCode, data)
}

// decodeError reads the body of a refusal.
func decodeError(op string, status int, data []byte) error {
	var e guestapi.FileError
	if err := json.Unmarshal(data, &e); err != nil {
		if status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
			return tooOld(op)
		}
		return broken(op, "status %d without a reason", status)
	}
	kind := sandbox.Kind(e.Code)
	if !slices.Contains(sandbox.Kinds(), kind) {
		kind = sandbox.Internal
	}
	return &sandbox.Error{Op: op, Kind: kind, Err: errors.New(text(e.Message, maxText)), Hint: text(e.Hint, maxText)}
}

// decodeInfo reads the JSON of a v1.FileInfo.
func decodeInfo(data []byte) (sandbox.FileInfo, error) {
	var f guestv1.FileInfo
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &f); err != nil {
		return sandbox.FileInfo{}, errorf("file info: %w", err)
	}
	return fileInfo(&f)
}

// fileBody is a download whose errors say what broke.
type fileBody struct {
	ctx context.Context
	op  string
	in  io.ReadCloser
}

func (b *fileBody) Read(p []byte) (int, error) {
	n, err := b.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = unreached(b.ctx, b.op, err)
	}
	return n, err
}

func (b *fileBody) Close() error { return b.in.Close() }
