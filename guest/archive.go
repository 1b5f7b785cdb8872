package guest

import (
	"archive/tar"
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strconv"
	"syscall"

	"github.com/klauspost/compress/gzip"

	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/tarball"
)

// packFolder answers GET /archive: a tar stream of what a folder holds, or of
// the one file that is named.
func (g *Guest) packFolder(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	excludes, err := parseGlobs(q["exclude"])
	if err != nil {
		sendError(w, err)
		return
	}
	packing, err := g.packing(q.Get("path"))
	if err != nil {
		sendError(w, err)
		return
	}
	defer packing.Root.Close()
	packing.Leave = excludes.match
	w.Header().Set(guestapi.ExcludesHeader, strconv.Itoa(len(excludes)))
	w.Header().Set("Content-Type", "application/x-tar")
	out := io.WriteCloser(nothingToClose{w})
	if q.Get("gzip") == "true" {
		w.Header().Set("Content-Type", "application/gzip")
		if out, err = gzip.NewWriterLevel(w, gzip.BestSpeed); err != nil {
			sendError(w, err)
			return
		}
	}
	buffered := bufio.NewWriterSize(out, 128<<10)
	_, err = packing.Run(r.Context(), buffered)
	if err = errors.Join(err, buffered.Flush(), out.Close()); err != nil {
		panic(http.ErrAbortHandler) // the host must not take a part for the whole
	}
}

type nothingToClose struct{ io.Writer }

func (nothingToClose) Close() error { return nil }

func (g *Guest) packing(p string) (*tarball.Packing, error) {
	name, err := cleanPath(p)
	if err != nil {
		return nil, err
	}
	target, info, err := g.resolve(name)
	switch {
	case err != nil:
		return nil, fromOS(err)
	case info == nil:
		return nil, fromOS(syscall.ENOENT)
	case !info.IsDir() && !info.Mode().IsRegular():
		return nil, refuse(invalid, "", "%.200q is neither a file nor a folder", name)
	}
	folder, entry := target, "."
	if !info.IsDir() {
		folder, entry = path.Split(target)
	}
	root, err := g.files.root(path.Clean(folder))
	if err != nil {
		return nil, fromOS(err)
	}
	return &tarball.Packing{Root: root, Name: entry}, nil
}

// unpackFolder answers PUT /archive: a tar stream, perhaps in gzip, becomes
// what a folder holds.
func (g *Guest) unpackFolder(w http.ResponseWriter, r *http.Request) {
	counts, err := g.unpack(r.Context(), r.URL.Query(), r.Body)
	if err != nil {
		sendError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(guestapi.Unpacked(counts)) // a broken connection is the host's to notice
}

func (g *Guest) unpack(ctx context.Context, q url.Values, body io.Reader) (tarball.Counts, error) {
	none := tarball.Counts{}
	name, err := cleanPath(q.Get("path"))
	if err != nil {
		return none, err
	}
	owner, err := g.owner(q.Get("user"))
	if err != nil {
		return none, err
	}
	root, made, err := g.folderToFill(name, owner)
	if err != nil {
		return none, err
	}
	defer root.Close()
	u := &tarball.Unpacking{Root: root, Mode: 0o7777, New: made, Attributes: true}
	keep := q.Get("keep_owner") == "true"
	if !g.scratch() {
		u.Owner = func(h *tar.Header) (int, int) {
			if keep {
				return h.Uid, h.Gid
			}
			return int(owner.uid), int(owner.gid)
		}
	}
	in := &source{r: body}
	stream, err := plain(in)
	if err != nil {
		return none, unpackError(ctx, in, err)
	}
	counts, err := u.Run(ctx, stream)
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(stream, maxPadding)) // so that a checksum behind it is looked at
	}
	return counts, unpackError(ctx, in, err)
}

// maxPadding bounds what is read behind the end of a stream.
const maxPadding = 16 << 20

// folderToFill opens a folder, which is made if nothing is there.
func (g *Guest) folderToFill(name string, owner account) (root *os.Root, made bool, err error) {
	target, info, err := g.resolve(name)
	if err != nil {
		return nil, false, fromOS(err)
	}
	if info == nil {
		if err := g.makeParents(path.Join(target, "x"), owner); err != nil {
			return nil, false, err
		}
	} else if !info.IsDir() {
		return nil, false, refuse(conflict, "remove it first", "%.200q is something else than a folder", name)
	}
	root, err = g.files.root(target)
	return root, info == nil, fromOS(err)
}

// plain undoes the gzip of a stream that has it.
func plain(r io.Reader) (io.Reader, error) {
	b := bufio.NewReaderSize(r, 128<<10)
	if magic, err := b.Peek(2); err != nil || magic[0] != 0x1f || magic[1] != 0x8b {
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return b, nil
	}
	return gzip.NewReader(b)
}

// source is a body that remembers its own error: what else goes wrong is wrong
// in the stream, or on the disk.
type source struct {
	r   io.Reader
	err error
}

func (s *source) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		s.err = err
	}
	return n, err
}

// unpackError says whether a body broke off, a stream is bad or a disk refused.
func unpackError(ctx context.Context, in *source, err error) error {
	var entry *tarball.EntryError
	switch {
	case err == nil:
		return nil
	case in.err != nil || ctx.Err() != nil:
		return bodyError(ctx, errors.Join(in.err, ctx.Err()))
	case errors.As(err, &entry):
		return refuse(invalid, "what came before it was unpacked", "%w", entry)
	case errors.Is(err, tarball.ErrMalformed), errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		return refuse(invalid, "send a tar stream, plain or in gzip", "%w", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return refuse(invalid, "send all of the stream", "the stream is cut off")
	case escapes(err):
		return refuse(invalid, "what came before it was unpacked", "an entry lies behind a link that leads out of the folder")
	}
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		if known, ok := errnos[errno]; ok {
			return refuse(known.code, known.hint, "%w", err) // the text names the entry
		}
	}
	return fromOS(err)
}
