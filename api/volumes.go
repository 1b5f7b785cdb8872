package api

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// Volumes are the verbs on folders that outlive sandboxes.
type Volumes interface {
	CreateVolume(ctx context.Context, req sandbox.VolumeRequest) (sandbox.Volume, error)
	Volumes(ctx context.Context) ([]sandbox.Volume, error)
	Volume(ctx context.Context, volume string) (sandbox.Volume, error)
	RemoveVolume(ctx context.Context, volume string) error
	ListVolume(ctx context.Context, volume, path string, depth int) ([]sandbox.VolumeEntry, error)
	ReadVolume(ctx context.Context, volume, path string) (io.ReadCloser, sandbox.VolumeEntry, error)
	WriteVolume(ctx context.Context, volume, path string, a sandbox.VolumeAttributes, replace bool, body io.Reader) (sandbox.VolumeEntry, error)
	RemoveFromVolume(ctx context.Context, volume, path string) error
}

func (a *API) createVolume(w http.ResponseWriter, r *http.Request) error {
	var req sandbox.VolumeRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	made, err := a.engine.CreateVolume(r.Context(), req)
	if err != nil {
		return err
	}
	w.Header().Set("Location", "/v1/volumes/"+string(made.ID))
	return writeJSON(w, http.StatusCreated, made)
}

func (a *API) volumes(w http.ResponseWriter, r *http.Request) error {
	all, err := a.engine.Volumes(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Volumes{Volumes: orEmpty(all)})
}

func (a *API) volume(w http.ResponseWriter, r *http.Request) error {
	v, err := a.engine.Volume(r.Context(), r.PathValue("volume"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, v)
}

func (a *API) removeVolume(w http.ResponseWriter, r *http.Request) error {
	if err := a.engine.RemoveVolume(r.Context(), r.PathValue("volume")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) listVolume(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path, depth := q.path("path"), max(1, q.positive("depth", 64))
	if err := q.check(); err != nil {
		return err
	}
	all, err := a.engine.ListVolume(r.Context(), r.PathValue("volume"), path, int(depth))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.VolumeEntries{Entries: orEmpty(all)})
}

func (a *API) readVolume(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path := q.path("path")
	if err := q.check(); err != nil {
		return err
	}
	body, entry, err := a.engine.ReadVolume(r.Context(), r.PathValue("volume"), path)
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(entry.Size, 10))
	return sendBody(w, http.StatusOK, body, entry.Size)
}

func (a *API) writeVolume(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path, replace := q.path("path"), q.boolean("replace")
	var attributes sandbox.VolumeAttributes
	for name, to := range map[string]**uint32{"uid": &attributes.UID, "gid": &attributes.GID, "mode": &attributes.Mode} {
		if r.URL.Query().Has(name) {
			n := uint32(q.number(name, 10, 32))
			*to = &n
		}
	}
	if err := q.check(); err != nil {
		return err
	}
	e, err := a.engine.WriteVolume(r.Context(), r.PathValue("volume"), path, attributes, replace, r.Body)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, e)
}

func (a *API) removeFromVolume(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path := q.path("path")
	if err := q.check(); err != nil {
		return err
	}
	if err := a.engine.RemoveFromVolume(r.Context(), r.PathValue("volume"), path); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
