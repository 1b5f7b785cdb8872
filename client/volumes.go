package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// CreateVolume makes a volume.
func (c *Client) CreateVolume(ctx context.Context, req sandbox.VolumeRequest) (sandbox.Volume, error) {
	var v sandbox.Volume
	err := c.do(ctx, call{op: "create volume", method: http.MethodPost, path: []string{"volumes"}, json: req}, &v)
	return v, err
}

// Volumes lists the volumes of the account, the oldest first.
func (c *Client) Volumes(ctx context.Context) ([]sandbox.Volume, error) {
	var out wire.Volumes
	err := c.do(ctx, call{op: "list volumes", method: http.MethodGet, path: []string{"volumes"}}, &out)
	return out.Volumes, err
}

// Volume returns a volume by id or name.
func (c *Client) Volume(ctx context.Context, volume string) (sandbox.Volume, error) {
	var v sandbox.Volume
	err := c.do(ctx, call{op: "get volume", method: http.MethodGet, path: []string{"volumes", volume}}, &v)
	return v, err
}

// RemoveVolume removes a volume with all that it holds.
func (c *Client) RemoveVolume(ctx context.Context, volume string) error {
	return c.do(ctx, call{op: "remove volume", method: http.MethodDelete, path: []string{"volumes", volume}}, nil)
}

// ListVolume lists a folder of a volume, depth levels of it.
func (c *Client) ListVolume(ctx context.Context, volume, path string, depth int) ([]sandbox.VolumeEntry, error) {
	v := url.Values{"path": {path}}
	setInt(v, "depth", int64(depth))
	var out wire.VolumeEntries
	err := c.do(ctx, call{op: "list volume", method: http.MethodGet, path: []string{"volumes", volume, "list"}, query: v}, &out)
	return out.Entries, err
}

// ReadVolume opens a file of a volume. The caller closes it. Of the entry it tells
// the path and the size.
func (c *Client) ReadVolume(ctx context.Context, volume, path string) (io.ReadCloser, sandbox.VolumeEntry, error) {
	resp, err := c.send(ctx, call{op: "read volume", method: http.MethodGet, path: []string{"volumes", volume, "files"}, query: url.Values{"path": {path}}, accept: "application/octet-stream"})
	if err != nil {
		return nil, sandbox.VolumeEntry{}, err
	}
	return resp.Body, sandbox.VolumeEntry{Path: path, Type: sandbox.TypeFile, Size: resp.ContentLength}, nil
}

// WriteVolume writes a file of a volume; replace lets it take the place of one that
// is there, and makes the folders above it.
func (c *Client) WriteVolume(ctx context.Context, volume, path string, a sandbox.VolumeAttributes, replace bool, body io.Reader) (sandbox.VolumeEntry, error) {
	v := url.Values{"path": {path}}
	setBool(v, "replace", replace)
	for name, n := range map[string]*uint32{"uid": a.UID, "gid": a.GID, "mode": a.Mode} {
		if n != nil {
			v.Set(name, strconv.FormatUint(uint64(*n), 10))
		}
	}
	var e sandbox.VolumeEntry
	err := c.do(ctx, call{op: "write volume", method: http.MethodPut, path: []string{"volumes", volume, "files"}, query: v, body: body}, &e)
	return e, err
}

// RemoveFromVolume removes an entry of a volume with all beneath it.
func (c *Client) RemoveFromVolume(ctx context.Context, volume, path string) error {
	return c.do(ctx, call{op: "remove from volume", method: http.MethodDelete, path: []string{"volumes", volume, "files"}, query: url.Values{"path": {path}}}, nil)
}
