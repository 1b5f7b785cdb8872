package api

import (
	"maps"
	"net/http"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

func (a *API) changeFile(w http.ResponseWriter, r *http.Request) error {
	var req wire.FileChange
	if err := decode(w, r, &req); err != nil {
		return err
	}
	change := sandbox.FileChange{Mode: req.Mode, Owner: req.Owner, Modified: req.Modified,
		Recursive: req.Recursive, Create: req.Create, User: req.User}
	fi, err := a.engine.ChangeFile(r.Context(), r.PathValue("id"), sandbox.Exact(req.Path, req.PathB64), change)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, fi)
}

func (a *API) copyFile(w http.ResponseWriter, r *http.Request) error {
	var req wire.CopyFile
	if err := decode(w, r, &req); err != nil {
		return err
	}
	fi, err := a.engine.CopyFile(r.Context(), r.PathValue("id"), sandbox.Exact(req.From, req.FromB64),
		sandbox.Exact(req.To, req.ToB64), sandbox.CopyOptions{Recursive: req.Recursive, Replace: req.Replace})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, fi)
}

func (a *API) linkFile(w http.ResponseWriter, r *http.Request) error {
	var req wire.LinkFile
	if err := decode(w, r, &req); err != nil {
		return err
	}
	fi, err := a.engine.LinkFile(r.Context(), r.PathValue("id"), sandbox.Exact(req.Path, req.PathB64),
		sandbox.Exact(req.Target, req.TargetB64), req.Replace)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, fi)
}

func (a *API) hashFile(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path := q.path("path")
	if err := q.check(); err != nil {
		return err
	}
	h, err := a.engine.HashFile(r.Context(), r.PathValue("id"), path)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, h)
}

func (a *API) attributes(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path := q.path("path")
	if err := q.check(); err != nil {
		return err
	}
	all, err := a.engine.FileAttributes(r.Context(), r.PathValue("id"), path)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.AttributesOf(all))
}

func (a *API) setAttributes(w http.ResponseWriter, r *http.Request) error {
	var req wire.SetAttributes
	if err := decode(w, r, &req); err != nil {
		return err
	}
	set := sandbox.Attributes{}
	for name, value := range req.Set {
		set[name] = []byte(value)
	}
	maps.Copy(set, req.SetB64)
	all, err := a.engine.SetFileAttributes(r.Context(), r.PathValue("id"), sandbox.Exact(req.Path, req.PathB64),
		sandbox.AttributeChange{Set: set, Remove: req.Remove})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.AttributesOf(all))
}

// The media types of an archive.
const (
	typeTar  = "application/x-tar"
	typeGzip = "application/gzip"
)

// archive sends a folder for as long as it takes.
func (a *API) archive(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path, o := q.path("path"), sandbox.ArchiveOptions{Gzip: q.boolean("gzip"), Excludes: q.texts("exclude")}
	if err := q.check(); err != nil {
		return err
	}
	body, err := a.engine.Archive(r.Context(), r.PathValue("id"), path, o)
	if err != nil {
		return err
	}
	defer body.Close()
	w.Header().Set("Content-Type", typeTar)
	if o.Gzip {
		w.Header().Set("Content-Type", typeGzip)
	}
	return sendBody(w, http.StatusOK, body, -1)
}

// unpack takes a tar stream of any size, for as long as it takes.
func (a *API) unpack(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path := q.path("path")
	o := sandbox.UnpackOptions{User: q.text("user"), KeepOwner: q.boolean("keep_owner")}
	if err := q.check(); err != nil {
		return err
	}
	u, err := a.engine.Unpack(r.Context(), r.PathValue("id"), path, o, r.Body)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, u)
}
