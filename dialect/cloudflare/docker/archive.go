package docker

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// archivePath reads the path of a call about files.
func archivePath(r *http.Request) (string, error) {
	p := r.URL.Query().Get("path")
	if !strings.HasPrefix(p, "/") {
		p = "/" + p
	}
	return p, sandbox.CheckPath(p)
}

// asked is the container that a request is about.
func (d *Dialect) asked(r *http.Request) (*container, error) {
	name, err := d.named(r)
	if err != nil {
		return nil, err
	}
	return d.load(r.Context(), name)
}

// putArchive unpacks a tar stream into a folder of a container, which need not run.
func (d *Dialect) putArchive(w http.ResponseWriter, r *http.Request) error {
	p, err := archivePath(r)
	if err != nil {
		return err
	}
	c, err := d.asked(r)
	if err != nil {
		return err
	}
	fi, err := d.engine.Stat(r.Context(), string(c.box.ID), p, true)
	if err != nil {
		return err
	}
	if fi.Type != sandbox.TypeDir {
		return invalid("%.200s is no folder", p)
	}
	if _, err := d.engine.Unpack(r.Context(), string(c.box.ID), p, sandbox.UnpackOptions{User: "root", KeepOwner: true}, r.Body); err != nil {
		return err
	}
	if path.Clean(p) == trustFolder {
		if err := d.trust(r.Context(), c); err != nil {
			return err
		}
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

// trustFolder is where workerd puts the certificate of a sidecar that is to end TLS.
const trustFolder = "/etc"

// trust has a container trust what its sidecar certifies. Most are never given that:
// it costs them more than all else that is done when they begin.
func (d *Dialect) trust(ctx context.Context, c *container) error {
	p, err := d.engine.Policy(ctx, string(c.box.ID))
	if err != nil || p.Divert != DiverterName || p.DivertTLS {
		return err
	}
	p.DivertTLS = true
	_, err = d.engine.SetPolicy(ctx, string(c.box.ID), p)
	return err
}

// getArchive packs a file or a folder. What a folder holds stands beneath its name,
// or beneath "." if the path ends with that.
func (d *Dialect) getArchive(w http.ResponseWriter, r *http.Request) (err error) {
	p, err := archivePath(r)
	if err != nil {
		return err
	}
	c, err := d.asked(r)
	if err != nil {
		return err
	}
	fi, err := d.engine.Stat(r.Context(), string(c.box.ID), path.Clean(p), false)
	if err != nil {
		return err
	}
	stream, err := d.engine.Archive(r.Context(), string(c.box.ID), path.Clean(p), sandbox.ArchiveOptions{})
	if err != nil {
		return err
	}
	defer stream.Close()
	w.Header().Set("Content-Type", "application/x-tar")
	w.Header().Set("X-Docker-Container-Path-Stat", statHeader(&fi))
	prefix := "."
	if fi.Type == sandbox.TypeDir && !strings.HasSuffix(p, "/.") && !strings.HasSuffix(p, "/") {
		prefix = path.Base(p)
	}
	if err := beneath(w, stream, prefix, fi.Type == sandbox.TypeDir); err != nil {
		if r.Context().Err() == nil {
			d.log.Error("pack a container's files", "container", c.Name, "error", err)
		}
		panic(http.ErrAbortHandler) // the answer has begun: the client must see that it is cut
	}
	return nil
}

// statHeader tells of what is packed.
func statHeader(fi *sandbox.FileInfo) string {
	mode := os.FileMode(fi.Mode & 0o777)
	switch fi.Type {
	case sandbox.TypeDir:
		mode |= os.ModeDir
	case sandbox.TypeSymlink:
		mode |= os.ModeSymlink
	}
	b, err := json.Marshal(map[string]any{"name": fi.Name, "size": fi.Size, "mode": uint32(mode), "mtime": moment(fi.Modified), "linkTarget": fi.Target})
	if err != nil {
		return ""
	}
	return base64.StdEncoding.EncodeToString(b)
}

// beneath copies a tar stream of a folder's entries, each beneath a prefix.
func beneath(w io.Writer, r io.Reader, prefix string, folder bool) error {
	if !folder || prefix == "." {
		_, err := io.Copy(w, r)
		return err
	}
	return rename(w, r, func(name string) string { return path.Join(prefix, name) + slash(name) })
}

func slash(name string) string {
	if strings.HasSuffix(name, "/") {
		return "/"
	}
	return ""
}
