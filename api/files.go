package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"unicode/utf16"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// maxDirPage bounds one page of a directory.
const maxDirPage = 10_000

func (a *API) stat(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path, follow := q.path("path"), q.boolean("follow")
	if err := q.check(); err != nil {
		return err
	}
	fi, err := a.engine.Stat(r.Context(), r.PathValue("id"), path, follow)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, fi)
}

func (a *API) listDir(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path, after, glob := q.path("path"), q.path("after"), q.text("glob")
	depth, limit := int(q.positive("depth", 64)), int(q.positive("limit", maxDirPage))
	if err := q.check(); err != nil {
		return err
	}
	list := func() ([]sandbox.FileInfo, bool, error) {
		return a.engine.ListDir(r.Context(), r.PathValue("id"), path, depth, limit, after)
	}
	if glob != "" {
		list = func() ([]sandbox.FileInfo, bool, error) {
			return a.engine.FindFiles(r.Context(), r.PathValue("id"), sandbox.FindQuery{Path: path, Glob: glob, Depth: depth, Limit: limit, After: after})
		}
	}
	entries, more, err := list()
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, wire.Files{Entries: orEmpty(entries), More: more})
}

func (a *API) makeDir(w http.ResponseWriter, r *http.Request) error {
	var req wire.MakeDir
	if err := decode(w, r, &req); err != nil {
		return err
	}
	fi, err := a.engine.MakeDir(r.Context(), r.PathValue("id"), sandbox.Exact(req.Path, req.PathB64), req.Mode, req.User, req.Parents)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, fi)
}

func (a *API) move(w http.ResponseWriter, r *http.Request) error {
	var req wire.Move
	if err := decode(w, r, &req); err != nil {
		return err
	}
	if err := a.engine.Move(r.Context(), r.PathValue("id"), sandbox.Exact(req.From, req.FromB64), sandbox.Exact(req.To, req.ToB64), req.Replace); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (a *API) removeFile(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path, recursive := q.path("path"), q.boolean("recursive")
	if err := q.check(); err != nil {
		return err
	}
	if err := a.engine.RemoveFile(r.Context(), r.PathValue("id"), path, recursive); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// writeFile takes a body of any size, for as long as it takes.
func (a *API) writeFile(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path := q.path("path")
	o := sandbox.WriteOptions{User: q.text("user"), Mode: uint32(q.number("mode", 8, 32)), Parents: q.boolean("parents"),
		InPlace: q.boolean("in_place"), Append: q.boolean("append")}
	if at := q.number("at", 10, 64); q.values.Has("at") {
		o.At = &at
	}
	if err := q.check(); err != nil {
		return err
	}
	fi, err := a.engine.WriteFile(r.Context(), r.PathValue("id"), path, o, r.Body)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, fi)
}

// headFile describes a file without its bytes.
func (a *API) headFile(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path := q.path("path")
	if err := q.check(); err != nil {
		return err
	}
	return a.showFile(w, r, path)
}

func (a *API) showFile(w http.ResponseWriter, r *http.Request, path string) error {
	fi, err := a.statFile(r, path)
	if err != nil {
		return err
	}
	describe(w, fi)
	w.Header().Set("Content-Length", strconv.FormatInt(fi.Size, 10))
	w.WriteHeader(http.StatusOK)
	return nil
}

func (a *API) statFile(r *http.Request, path string) (sandbox.FileInfo, error) {
	fi, err := a.engine.Stat(r.Context(), r.PathValue("id"), path, true)
	if err == nil && fi.Type == sandbox.TypeDir {
		err = &sandbox.Error{Op: "read file " + path, Kind: sandbox.Invalid, Err: errors.New("it is a directory"),
			Hint: "list it with /files/list"}
	}
	return fi, err
}

func (a *API) readFile(w http.ResponseWriter, r *http.Request) error {
	q := queryOf(r)
	path := q.path("path")
	if err := q.check(); err != nil {
		return err
	}
	return a.sendFile(w, r, path)
}

// sendFile answers with a file, or with the part that the Range header asks for.
func (a *API) sendFile(w http.ResponseWriter, r *http.Request, path string) error {
	span, err := parseRange(r.Header.Get("Range"))
	if err != nil {
		return err
	}
	if span != nil {
		return a.sendPart(w, r, path, span)
	}
	body, fi, err := a.engine.ReadFile(r.Context(), r.PathValue("id"), path, sandbox.ReadRange{})
	if err != nil {
		return err
	}
	defer body.Close()
	describe(w, fi)
	length := int64(-1)
	if fi.Type == sandbox.TypeFile && fi.Size > 0 { // what the kernel makes up on reading has size 0
		length = fi.Size
	}
	w.Header().Set("Vary", "Accept-Encoding")
	if takesGzip(r.Header) && (length < 0 || length >= squeezeFrom) {
		return sendSqueezed(w, body, length)
	}
	return sendBody(w, http.StatusOK, body, length)
}

func (a *API) sendPart(w http.ResponseWriter, r *http.Request, path string, span *byteRange) error {
	fi, err := a.statFile(r, path)
	if err != nil {
		return err
	}
	part, err := span.of(fi.Size)
	if err != nil {
		return err
	}
	body, fi, err := a.engine.ReadFile(r.Context(), r.PathValue("id"), fi.Path, part)
	if err != nil {
		return err
	}
	defer body.Close()
	describe(w, fi)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", part.Offset, part.Offset+part.Length-1, fi.Size))
	return sendBody(w, http.StatusPartialContent, body, part.Length)
}

// sendBody copies a body of a known length, or of any (-1). One that is shorter
// is an error, which cuts the answer.
func sendBody(w http.ResponseWriter, status int, body io.Reader, length int64) error {
	if length >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	w.WriteHeader(status)
	out := &pacedWriter{w: w, rc: http.NewResponseController(w)}
	if length < 0 {
		_, err := io.CopyBuffer(out, body, make([]byte, 256<<10))
		return err
	}
	n, err := copyUpTo(out, body, length)
	if err == nil && n < length {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// copyUpTo copies at most length bytes of a body, which may have large pieces of its
// own.
func copyUpTo(w io.Writer, body io.Reader, length int64) (int64, error) {
	if whole, ok := body.(io.WriterTo); ok {
		return whole.WriteTo(&bounded{w, length})
	}
	return io.CopyBuffer(w, io.LimitReader(body, length), make([]byte, 256<<10))
}

// bounded takes so many bytes and refuses more.
type bounded struct {
	w    io.Writer
	left int64
}

func (b *bounded) Write(p []byte) (int, error) {
	if int64(len(p)) > b.left {
		return 0, errors.New("the body is longer than it said")
	}
	n, err := b.w.Write(p)
	b.left -= int64(n)
	return n, err
}

// describe puts a file's description into the header.
func describe(w http.ResponseWriter, fi sandbox.FileInfo) {
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Accept-Ranges", "bytes")
	h.Set("Last-Modified", fi.Modified.UTC().Format(http.TimeFormat))
	h.Set(wire.HeaderFileInfo, asciiJSON(fi))
}

// asciiJSON writes v as JSON that a header can hold.
func asciiJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "{}" // no description is worth more than no file
	}
	var b []byte
	for _, r := range string(raw) {
		switch {
		case r >= ' ' && r < 0x7f:
			b = append(b, byte(r))
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			b = fmt.Appendf(b, `\u%04x\u%04x`, hi, lo)
		default:
			b = fmt.Appendf(b, `\u%04x`, r)
		}
	}
	return string(b)
}
