package guest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"syscall"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// patchFile answers PATCH /files: a body is added to a file, written into it, or
// takes the place of what it held.
// What came before a body breaks off stays.
func (g *Guest) patchFile(w http.ResponseWriter, r *http.Request) {
	info, err := g.patch(r.Context(), r.URL.Query(), r.Body, carrierOf(w, r))
	sendInfo(w, info, err)
}

// patch does that. host may be nil, and is of use only for what takes a file's place.
func (g *Guest) patch(ctx context.Context, q url.Values, body io.Reader, host *carrier) (*guestv1.FileInfo, error) {
	name, err := cleanPath(q.Get("path"))
	if err != nil {
		return nil, err
	}
	mode, err := parseMode(q.Get("mode"))
	if err != nil {
		return nil, err
	}
	at, err := number(q.Get("at"))
	add, replace := q.Get("append") == "true", q.Get("in_place") == "true"
	if err != nil || add && replace || q.Has("at") == (add || replace) {
		return nil, refuse(invalid, "set in_place, append, or at to a count of bytes", "malformed place to write to")
	}
	owner, err := g.owner(q.Get("user"))
	if err != nil {
		return nil, err
	}
	target, old, err := g.destination(name)
	if err != nil {
		return nil, err
	}
	if old == nil && q.Get("parents") == "true" {
		if err := g.makeParents(target, owner); err != nil {
			return nil, err
		}
	}
	f, err := g.openToPatch(target, old, mode, owner, add, replace)
	if err != nil {
		return nil, withHint(fromOS(err), notFound, "set parents to make the folders above it")
	}
	if replace && host != nil {
		err = host.fill(ctx, f, body)
	} else if _, err = f.Seek(at, io.SeekStart); err == nil {
		_, err = io.CopyBuffer(onlyWriter{f}, &steady{ctx, body}, make([]byte, 128<<10))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fromOS(bodyError(ctx, err))
	}
	if old != nil && mode != 0 {
		if err := g.files.chmod(target, fileMode(mode)); err != nil {
			return nil, fromOS(err)
		}
	}
	info, err := g.stat(target, false)
	if err == nil {
		info.Path = []byte(name)
	}
	return info, err
}

// openToPatch opens a file to write into, which is made if it is not there.
func (g *Guest) openToPatch(target string, old fs.FileInfo, mode uint32, owner account, add, replace bool) (*os.File, error) {
	flag := os.O_WRONLY | syscall.O_NOFOLLOW
	if replace {
		flag |= os.O_TRUNC
	}
	if add {
		flag |= os.O_APPEND
	}
	if old != nil {
		return g.files.open(target, flag, 0)
	}
	if mode == 0 {
		mode = newFile
	}
	f, err := g.files.open(target, flag|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return g.files.open(target, flag, 0) // somebody was faster
	}
	if err != nil {
		return nil, err
	}
	err = g.files.chown(target, owner.uid, owner.gid)
	if err == nil {
		err = g.files.chmod(target, fileMode(mode))
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
