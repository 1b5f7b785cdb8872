package guest

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"syscall"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/berth-dev/berth/guestapi"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// httpStatus is the status of a file route's error; the body says the kind.
const httpStatus = http.StatusUnprocessableEntity

// readFile answers GET /files.
func (g *Guest) readFile(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	f, info, err := g.openToRead(q.Get("path"))
	if err != nil {
		sendError(w, err)
		return
	}
	defer f.Close()
	length, err := seek(f, info.Size, q)
	if err != nil {
		sendError(w, err)
		return
	}
	described, err := protojson.Marshal(info)
	if err != nil {
		sendError(w, err)
		return
	}
	w.Header().Set(guestapi.FileInfoHeader, string(described))
	w.Header().Set("Content-Type", "application/octet-stream")
	switch host := carrierOf(w, r); {
	case host != nil && length >= carryFrom:
		err = host.lend(f, length)
	case length >= 0:
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
		_, err = io.CopyN(w, f, length)
	default:
		_, err = io.Copy(w, f)
	}
	if err != nil {
		panic(http.ErrAbortHandler) // the host must not take a part for the whole
	}
}

// openToRead opens a regular file.
func (g *Guest) openToRead(p string) (*os.File, *guestv1.FileInfo, error) {
	name, err := cleanPath(p)
	if err != nil {
		return nil, nil, err
	}
	f, err := g.files.open(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, nil, fromOS(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = refuse(invalid, "list a folder instead; devices and pipes are read by a process", "%.200q is not a regular file", name)
	}
	if err != nil {
		f.Close()
		return nil, nil, fromOS(err)
	}
	return f, g.describe(name, info, &names{}), nil
}

// seek goes to the part that is asked for and tells its length; -1 means to the
// end, wherever that is. Files of the kernel's say 0 and hold more.
func seek(f *os.File, size int64, q url.Values) (int64, error) {
	offset, err1 := number(q.Get("offset"))
	length, err2 := number(q.Get("length"))
	if err := errors.Join(err1, err2); err != nil {
		return 0, refuse(invalid, "offset and length count bytes", "malformed range")
	}
	if size > 0 && offset > size {
		return 0, refuse(invalid, "", "offset %d lies behind the end, at %d", offset, size)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return 0, fromOS(err)
	}
	switch {
	case size == 0:
		return -1, nil
	case length == 0:
		return size - offset, nil
	}
	return min(length, size-offset), nil
}

// number reads a count of 0 or more; "" is 0.
func number(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 63)
	return int64(n), err
}

// writeFile answers PUT /files.
func (g *Guest) writeFile(w http.ResponseWriter, r *http.Request) {
	info, err := g.put(r.Context(), r.URL.Query(), r.Body, carrierOf(w, r))
	sendInfo(w, info, err)
}

// sendInfo answers with what is there now, or with what went wrong.
func sendInfo(w http.ResponseWriter, info *guestv1.FileInfo, err error) {
	if err != nil {
		sendError(w, err)
		return
	}
	body, err := protojson.Marshal(info)
	if err != nil {
		sendError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body) // a broken connection is the host's to notice
}

// put stores a body under a path, whole or not at all. host may be nil.
func (g *Guest) put(ctx context.Context, q url.Values, body io.Reader, host *carrier) (*guestv1.FileInfo, error) {
	name, err := cleanPath(q.Get("path"))
	if err != nil {
		return nil, err
	}
	mode, err := parseMode(q.Get("mode"))
	if err != nil {
		return nil, err
	}
	owner, err := g.owner(q.Get("user"))
	if err != nil {
		return nil, err
	}
	target, old, err := g.destination(name)
	if err != nil {
		return nil, err
	}
	w := writing{g: g, target: target, mode: mode, owner: owner, host: host}
	if old != nil {
		w.keep(old)
	} else if q.Get("parents") == "true" {
		if err := g.makeParents(target, owner); err != nil {
			return nil, err
		}
	}
	if err := w.run(ctx, body); err != nil {
		return nil, withHint(fromOS(err), notFound, "set parents to make the folders above it")
	}
	info, err := g.stat(target, false)
	if err == nil {
		info.Path = []byte(name)
	}
	return info, err
}

// parseMode reads an octal mode; "" is 0.
func parseMode(s string) (uint32, error) {
	mode, err := strconv.ParseUint("0"+s, 8, 32)
	if err == nil {
		err = checkMode(uint32(mode))
	}
	if err != nil {
		return 0, refuse(invalid, "a mode is octal, 0 to 7777", "malformed mode %.20q", s)
	}
	return uint32(mode), nil
}

// maxLinks bounds the symbolic links at the end of a path, as the kernel does.
const maxLinks = 40

// destination is the file that writing to name means: what its links point to.
// The second result describes it if it is there.
func (g *Guest) destination(name string) (string, fs.FileInfo, error) {
	for range maxLinks {
		info, err := g.files.lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil, nil
		case err != nil:
			return "", nil, fromOS(err)
		case info.IsDir():
			return "", nil, refuse(invalid, "name a file in it", "%.200q is a folder", name)
		case info.Mode().IsRegular():
			return name, info, nil
		case info.Mode()&fs.ModeSymlink == 0:
			return "", nil, refuse(invalid, "devices and pipes are written by a process", "%.200q is not a regular file", name)
		}
		target, err := g.files.readlink(name)
		if err != nil {
			return "", nil, fromOS(err)
		}
		if g.scratch() {
			// Whether a link stays inside is for the kernel to say.
			if _, err := g.files.stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return "", nil, fromOS(err)
			}
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(name), target)
		}
		name = path.Clean(target)
	}
	return "", nil, fromOS(syscall.ELOOP)
}

// writing is one file on its way to its place.
type writing struct {
	g      *Guest
	target string
	mode   uint32
	owner  account
	host   *carrier
}

// keep takes over from the file that will be replaced what is not asked for.
func (w *writing) keep(old fs.FileInfo) {
	if w.mode == 0 {
		w.mode = modeBits(old.Mode())
	}
	if s, ok := old.Sys().(*syscall.Stat_t); ok {
		w.owner.uid, w.owner.gid = s.Uid, s.Gid
	}
}

// run writes beside the target and renames over it when all has come.
func (w *writing) run(ctx context.Context, body io.Reader) (err error) {
	if w.mode == 0 {
		w.mode = newFile
	}
	files := w.g.files
	temp := path.Join(path.Dir(w.target), ".berth-"+rand.Text())
	f, err := files.open(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			files.remove(temp)
		}
	}()
	if err = errors.Join(w.host.fill(ctx, f, body), f.Close()); err != nil {
		return bodyError(ctx, err)
	}
	if err := files.chown(temp, w.owner.uid, w.owner.gid); err != nil {
		return err
	}
	if err := files.chmod(temp, fileMode(w.mode)); err != nil {
		return err
	}
	return files.rename(temp, w.target)
}

// onlyWriter hides a shortcut that would take small buffers.
type onlyWriter struct{ io.Writer }

// bodyError tells a body that broke off from a disk that refused it.
func bodyError(ctx context.Context, err error) error {
	if errno := syscall.Errno(0); errors.As(err, &errno) && errno != syscall.ECONNRESET && errno != syscall.EPIPE {
		return err
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return refuse(canceled, "", "the body broke off: %w", err)
}

// sendError answers with a FileError.
func sendError(w http.ResponseWriter, err error) {
	w.Header().Del("Content-Length")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(httpStatus)
	json.NewEncoder(w).Encode(guestapi.FileError{
		Code: guestapi.KindOf(codeOf(err)), Message: textOf(err), Hint: hintOf(err)})
}
