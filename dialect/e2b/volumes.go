package e2b

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// volumeInfo is a volume; what follows its name opens what it holds.
type volumeInfo struct {
	VolumeID string `json:"volumeID"`
	Name     string `json:"name"`
	Token    string `json:"token,omitempty"`
}

func (d *Dialect) volumeOf(v sandbox.Volume) volumeInfo {
	return volumeInfo{VolumeID: string(v.ID), Name: v.Name, Token: d.volumeToken(v.Account, v.ID)}
}

// volumeToken opens what a volume holds. It names the account, which the volume is
// looked up in.
func (d *Dialect) volumeToken(account string, id sandbox.ID) string {
	return account + "." + d.derive("volume "+account, id)
}

func (d *Dialect) createVolume(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Name string `json:"name"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	v, err := d.engine.CreateVolume(r.Context(), sandbox.VolumeRequest{Name: body.Name})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, d.volumeOf(v))
	return nil
}

func (d *Dialect) listVolumes(w http.ResponseWriter, r *http.Request) error {
	all, err := d.engine.Volumes(r.Context())
	if err != nil {
		return err
	}
	out := make([]volumeInfo, 0, len(all))
	for _, v := range all {
		out = append(out, volumeInfo{VolumeID: string(v.ID), Name: v.Name})
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (d *Dialect) volume(r *http.Request) (sandbox.Volume, error) {
	given := r.PathValue("volume")
	v, err := d.engine.Volume(r.Context(), given)
	if kind := sandbox.KindOf(err); kind == sandbox.NotFound || kind == sandbox.Invalid {
		err = &fault{status: http.StatusNotFound, text: fmt.Sprintf("volume '%s' not found", printable(given)), err: err}
	}
	return v, err
}

func (d *Dialect) getVolume(w http.ResponseWriter, r *http.Request) error {
	v, err := d.volume(r)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, d.volumeOf(v))
	return nil
}

func (d *Dialect) removeVolume(w http.ResponseWriter, r *http.Request) error {
	v, err := d.volume(r)
	if err != nil {
		return err
	}
	if err := d.engine.RemoveVolume(r.Context(), string(v.ID)); err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

// mounts are the volumes of a create in the engine's words.
func mounts(all []volumeMount) (out []sandbox.VolumeMount) {
	for _, m := range all {
		out = append(out, sandbox.VolumeMount{Volume: m.Name, Path: m.Path})
	}
	return out
}

// mountsOf are the volumes of a sandbox, by their names.
func (d *Dialect) mountsOf(ctx context.Context, s *sandbox.Sandbox) ([]volumeMount, error) {
	var out []volumeMount
	for _, m := range s.Volumes {
		v, err := d.engine.Volume(ctx, m.Volume)
		if err != nil {
			return nil, err
		}
		out = append(out, volumeMount{Name: v.Name, Path: m.Path})
	}
	return out, nil
}

// volumeEntry describes an entry of a volume.
type volumeEntry struct {
	Name   string    `json:"name"`
	Type   string    `json:"type"`
	Path   string    `json:"path"`
	Size   int64     `json:"size"`
	Mode   uint32    `json:"mode"`
	UID    uint32    `json:"uid"`
	GID    uint32    `json:"gid"`
	Atime  time.Time `json:"atime"`
	Mtime  time.Time `json:"mtime"`
	Ctime  time.Time `json:"ctime"`
	Target string    `json:"target,omitempty"`
}

func volumeEntryOf(e sandbox.VolumeEntry) volumeEntry {
	out := volumeEntry{Name: e.Name, Type: "unknown", Path: e.Path, Size: e.Size, Mode: e.Mode, UID: e.UID, GID: e.GID,
		Atime: e.Accessed, Mtime: e.Modified, Ctime: e.Changed, Target: e.Target}
	switch e.Type {
	case sandbox.TypeFile:
		out.Type = "file"
	case sandbox.TypeDir:
		out.Type = "directory"
	case sandbox.TypeSymlink:
		out.Type = "symlink"
	}
	return out
}

// inVolume serves a request for what a volume holds, on behalf of the account that
// its token names.
func (d *Dialect) inVolume(h func(w http.ResponseWriter, r *http.Request, volume, path string) error) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		account, _, _ := strings.Cut(token, ".")
		id := r.PathValue("volume")
		if !same(token, d.volumeToken(account, sandbox.ID(id))) {
			return unauthorized("Invalid volume token: ask for the volume anew")
		}
		ctx := sandbox.WithCaller(r.Context(), sandbox.Caller{Account: account, Key: "volume", Scopes: []sandbox.Scope{sandbox.ScopeExec}})
		return h(w, r.WithContext(ctx), id, r.URL.Query().Get("path"))
	}
}

// sendAll copies what must have size bytes.
func sendAll(w io.Writer, body io.Reader, size int64) error {
	n, err := io.Copy(w, body)
	if err == nil && n != size {
		err = io.ErrUnexpectedEOF // it has become shorter
	}
	return err
}

// attributesOf reads what a request says of a new entry.
func attributesOf(r *http.Request) (a sandbox.VolumeAttributes, force bool, err error) {
	q := r.URL.Query()
	for name, to := range map[string]**uint32{"uid": &a.UID, "gid": &a.GID, "mode": &a.Mode} {
		if !q.Has(name) {
			continue
		}
		n, err := strconv.ParseUint(q.Get(name), 10, 32)
		if err != nil {
			return a, false, invalid(name + " is a number of 0 or more")
		}
		value := uint32(n)
		*to = &value
	}
	return a, q.Get("force") == "true", nil
}

func (d *Dialect) listInVolume(w http.ResponseWriter, r *http.Request, volume, path string) error {
	depth := 1
	if text := r.URL.Query().Get("depth"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			return invalid("depth is a number of 1 or more")
		}
		depth = n
	}
	all, err := d.engine.ListVolume(r.Context(), volume, path, depth)
	if err != nil {
		return err
	}
	out := make([]volumeEntry, 0, len(all))
	for _, e := range all {
		out = append(out, volumeEntryOf(e))
	}
	writeJSON(w, http.StatusOK, out)
	return nil
}

func (d *Dialect) makeInVolume(w http.ResponseWriter, r *http.Request, volume, path string) error {
	a, force, err := attributesOf(r)
	if err != nil {
		return err
	}
	e, err := d.engine.MakeVolumeDir(r.Context(), volume, path, a, force)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, volumeEntryOf(e))
	return nil
}

func (d *Dialect) statInVolume(w http.ResponseWriter, r *http.Request, volume, path string) error {
	e, err := d.engine.StatVolume(r.Context(), volume, path)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, volumeEntryOf(e))
	return nil
}

func (d *Dialect) changeInVolume(w http.ResponseWriter, r *http.Request, volume, path string) error {
	var a sandbox.VolumeAttributes
	if err := decode(w, r, &a); err != nil {
		return err
	}
	e, err := d.engine.SetVolumeAttributes(r.Context(), volume, path, a)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, volumeEntryOf(e))
	return nil
}

func (d *Dialect) removeInVolume(w http.ResponseWriter, r *http.Request, volume, path string) error {
	if err := d.engine.RemoveFromVolume(r.Context(), volume, path); err != nil {
		return err
	}
	writeEmpty(w, http.StatusNoContent)
	return nil
}

func (d *Dialect) readInVolume(w http.ResponseWriter, r *http.Request, volume, path string) error {
	body, e, err := d.engine.ReadVolume(r.Context(), volume, path)
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(e.Size, 10))
	w.WriteHeader(http.StatusOK)
	if err := sendAll(w, body, e.Size); err != nil {
		d.log.Debug("read of a volume", "volume", volume, "error", err)
		panic(http.ErrAbortHandler) // the answer has begun: the client must see that it is cut
	}
	return nil
}

func (d *Dialect) writeInVolume(w http.ResponseWriter, r *http.Request, volume, path string) error {
	a, force, err := attributesOf(r)
	if err != nil {
		return err
	}
	e, err := d.engine.WriteVolume(r.Context(), volume, path, a, force, r.Body)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusCreated, volumeEntryOf(e))
	return nil
}
