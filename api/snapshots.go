package api

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Snapshots are the verbs on moments of sandboxes that are kept.
type Snapshots interface {
	Snapshot(ctx context.Context, id string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error)
	Snapshots(ctx context.Context, q sandbox.SnapshotQuery) ([]sandbox.Snapshot, error)
	GetSnapshot(ctx context.Context, id string) (sandbox.Snapshot, error)
	RemoveSnapshot(ctx context.Context, id string) error
	Rollback(ctx context.Context, id string, req sandbox.RollbackRequest) (sandbox.Sandbox, error)
	ExportSnapshot(ctx context.Context, id string, req sandbox.ExportRequest, to io.Writer) error
	ImportSnapshot(ctx context.Context, from io.Reader, req sandbox.ImportRequest) (sandbox.Snapshot, error)
}

// Backups are the verbs on folders of sandboxes that are kept.
type Backups interface {
	Backup(ctx context.Context, id string, req sandbox.BackupRequest) (sandbox.Backup, error)
	Backups(ctx context.Context, sandboxID string) ([]sandbox.Backup, error)
	GetBackup(ctx context.Context, id string) (sandbox.Backup, error)
	RemoveBackup(ctx context.Context, id string) error
	RestoreBackup(ctx context.Context, id string, req sandbox.RestoreBackupRequest) (sandbox.Unpacked, error)
}

// takeSnapshot takes an empty body as a request for the defaults.
func (a *API) takeSnapshot(w http.ResponseWriter, r *http.Request) error {
	var req sandbox.SnapshotRequest
	if err := decode(w, r, &req); err != nil && !errors.Is(err, errEmpty) {
		return err
	}
	s, err := a.engine.Snapshot(r.Context(), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/snapshots/"+string(s.ID))
	return writeJSON(w, http.StatusCreated, s)
}

func (a *API) snapshots(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	query := sandbox.SnapshotQuery{Sandbox: q.text("sandbox")}
	if err := q.check(); err != nil {
		return err
	}
	all, err := a.engine.Snapshots(r.Context(), query)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Snapshots{Snapshots: all})
}

func (a *API) snapshot(w http.ResponseWriter, r *http.Request) error {
	s, err := a.engine.GetSnapshot(r.Context(), r.PathValue("snapshot"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s)
}

func (a *API) removeSnapshot(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.RemoveSnapshot(r.Context(), r.PathValue("snapshot")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) rollback(w http.ResponseWriter, r *http.Request) error {
	var req sandbox.RollbackRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	s, err := a.engine.Rollback(r.Context(), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, s)
}

// exportSnapshot sends a snapshot for as long as it takes. An error after the
// beginning cuts the answer.
func (a *API) exportSnapshot(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	req := sandbox.ExportRequest{WithoutRoot: q.boolean("without_root")}
	if err := q.check(); err != nil {
		return err
	}
	s, err := a.engine.GetSnapshot(r.Context(), r.PathValue("snapshot"))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", typeTar)
	return a.engine.ExportSnapshot(r.Context(), string(s.ID), req, w)
}

// importSnapshot takes a stream of exportSnapshot's, for as long as it takes.
func (a *API) importSnapshot(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	req := sandbox.ImportRequest{Name: q.text("name"), TTLSeconds: q.positive("ttl_seconds", sandbox.MaxTTL)}
	if err := q.check(); err != nil {
		return err
	}
	s, err := a.engine.ImportSnapshot(r.Context(), r.Body, req)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/snapshots/"+string(s.ID))
	return writeJSON(w, http.StatusCreated, s)
}

func (a *API) takeBackup(w http.ResponseWriter, r *http.Request) error {
	var req sandbox.BackupRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	b, err := a.engine.Backup(r.Context(), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/backups/"+string(b.ID))
	return writeJSON(w, http.StatusCreated, b)
}

func (a *API) backups(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	of := q.text("sandbox")
	if err := q.check(); err != nil {
		return err
	}
	all, err := a.engine.Backups(r.Context(), of)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Backups{Backups: all})
}

func (a *API) backup(w http.ResponseWriter, r *http.Request) error {
	b, err := a.engine.GetBackup(r.Context(), r.PathValue("backup"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, b)
}

func (a *API) removeBackup(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.RemoveBackup(r.Context(), r.PathValue("backup")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) restoreBackup(w http.ResponseWriter, r *http.Request) error {
	var req sandbox.RestoreBackupRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	u, err := a.engine.RestoreBackup(r.Context(), r.PathValue("id"), req)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, u)
}
