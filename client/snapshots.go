package client

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Snapshot keeps a sandbox as it is at one moment.
func (c *Client) Snapshot(ctx context.Context, id string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error) {
	var s sandbox.Snapshot
	err := c.do(ctx, call{op: "snapshot", method: http.MethodPost, path: []string{"sandboxes", id, "snapshots"}, json: req}, &s)
	return s, err
}

// Snapshots lists the snapshots of the account, the newest first.
func (c *Client) Snapshots(ctx context.Context, q sandbox.SnapshotQuery) ([]sandbox.Snapshot, error) {
	v := url.Values{}
	setIf(v, "sandbox", q.Sandbox)
	var out wire.Snapshots
	err := c.do(ctx, call{op: "list snapshots", method: http.MethodGet, path: []string{"snapshots"}, query: v}, &out)
	return out.Snapshots, err
}

// GetSnapshot returns one snapshot by id or name.
func (c *Client) GetSnapshot(ctx context.Context, id string) (sandbox.Snapshot, error) {
	var s sandbox.Snapshot
	err := c.do(ctx, call{op: "get snapshot", method: http.MethodGet, path: []string{"snapshots", id}}, &s)
	return s, err
}

// RemoveSnapshot removes a snapshot by id or name.
func (c *Client) RemoveSnapshot(ctx context.Context, id string) error {
	return c.do(ctx, call{op: "remove snapshot", method: http.MethodDelete, path: []string{"snapshots", id}}, nil)
}

// Rollback takes a sandbox back to a snapshot.
func (c *Client) Rollback(ctx context.Context, id string, req sandbox.RollbackRequest) (sandbox.Sandbox, error) {
	var s sandbox.Sandbox
	err := c.do(ctx, call{op: "roll back", method: http.MethodPost, path: []string{"sandboxes", id, "rollback"}, json: req}, &s)
	return s, err
}

// ExportSnapshot writes a snapshot as one stream, which ImportSnapshot reads.
func (c *Client) ExportSnapshot(ctx context.Context, id string, req sandbox.ExportRequest, to io.Writer) error {
	const op = "export snapshot"
	v := url.Values{}
	if req.WithoutRoot {
		v.Set("without_root", "true")
	}
	resp, err := c.send(ctx, call{op: op, method: http.MethodGet, path: []string{"snapshots", id, "export"}, query: v, accept: "application/x-tar"})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(to, resp.Body); err != nil {
		return sendError(ctx, op, err)
	}
	return nil
}

// ImportSnapshot keeps what a stream of ExportSnapshot's holds; it takes the
// operator's key.
func (c *Client) ImportSnapshot(ctx context.Context, from io.Reader, req sandbox.ImportRequest) (sandbox.Snapshot, error) {
	v := url.Values{}
	setIf(v, "name", req.Name)
	setInt(v, "ttl_seconds", req.TTLSeconds)
	var s sandbox.Snapshot
	err := c.do(ctx, call{op: "import snapshot", method: http.MethodPost, path: []string{"snapshots"}, query: v, body: from}, &s)
	return s, err
}

// Backup keeps what a folder of a sandbox holds.
func (c *Client) Backup(ctx context.Context, id string, req sandbox.BackupRequest) (sandbox.Backup, error) {
	var b sandbox.Backup
	err := c.do(ctx, call{op: "backup", method: http.MethodPost, path: []string{"sandboxes", id, "backups"}, json: req}, &b)
	return b, err
}

// Backups lists the backups of the account, the newest first; of one sandbox, if
// sandboxID is not "".
func (c *Client) Backups(ctx context.Context, sandboxID string) ([]sandbox.Backup, error) {
	v := url.Values{}
	setIf(v, "sandbox", sandboxID)
	var out wire.Backups
	err := c.do(ctx, call{op: "list backups", method: http.MethodGet, path: []string{"backups"}, query: v}, &out)
	return out.Backups, err
}

// GetBackup returns one backup.
func (c *Client) GetBackup(ctx context.Context, id string) (sandbox.Backup, error) {
	var b sandbox.Backup
	err := c.do(ctx, call{op: "get backup", method: http.MethodGet, path: []string{"backups", id}}, &b)
	return b, err
}

// RemoveBackup removes a backup.
func (c *Client) RemoveBackup(ctx context.Context, id string) error {
	return c.do(ctx, call{op: "remove backup", method: http.MethodDelete, path: []string{"backups", id}}, nil)
}

// RestoreBackup puts what a backup holds into a folder of a sandbox.
func (c *Client) RestoreBackup(ctx context.Context, id string, req sandbox.RestoreBackupRequest) (sandbox.Unpacked, error) {
	var u sandbox.Unpacked
	err := c.do(ctx, call{op: "restore backup", method: http.MethodPost, path: []string{"sandboxes", id, "restore-backup"}, json: req}, &u)
	return u, err
}
