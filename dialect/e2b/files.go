package e2b

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// download gives the bytes of a file, whole or in ranges.
func (d *Dialect) download(w http.ResponseWriter, r *http.Request) error {
	t, err := d.fileTarget(r, r.URL.Query().Get("username"))
	if err != nil {
		return err
	}
	p := t.path(r.URL.Query().Get("path"))
	fi, err := d.engine.Stat(r.Context(), t.id, p, true)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		return &fault{status: http.StatusNotFound, text: fmt.Sprintf("path '%s' does not exist", p), err: err}
	case err != nil:
		return fileError(err)
	case fi.Type == sandbox.TypeDir:
		return &fault{status: http.StatusBadRequest, text: fmt.Sprintf("path '%s' is a directory", p)}
	case fi.Type != sandbox.TypeFile:
		return &fault{status: http.StatusBadRequest, text: fmt.Sprintf("path '%s' is not a regular file", p)}
	}
	h := w.Header()
	h.Set("Vary", "Accept-Encoding")
	if h.Set("Content-Disposition", mime.FormatMediaType("inline", map[string]string{"filename": path.Base(p)})); h.Get("Content-Disposition") == "" {
		h.Set("Content-Disposition", "inline")
	}
	if mime.TypeByExtension(path.Ext(p)) == "" {
		h.Set("Content-Type", "application/octet-stream")
	}
	if fi.Size == 0 {
		return d.downloadUnsized(w, r, p, fi.Modified)
	}
	body := &fileBody{engine: d.engine, ctx: r.Context(), id: t.id, path: p, size: fi.Size}
	defer body.Close()
	switch packing := packingOf(r.Header); {
	case packing == refused:
		return &fault{status: http.StatusNotAcceptable, text: "no acceptable encoding found, supported: gzip, identity"}
	case packing == packed && r.Header.Get("Range") == "":
		h.Set("Content-Encoding", "gzip")
		to := &packer{ResponseWriter: w}
		http.ServeContent(to, r, path.Base(p), fi.Modified, body)
		if body.failed == nil {
			body.failed = to.Close()
		}
	default:
		http.ServeContent(w, r, path.Base(p), fi.Modified, body)
	}
	if body.failed != nil && r.Context().Err() == nil {
		panic(http.ErrAbortHandler) // the answer has begun: the client must see that it is cut
	}
	return nil
}

// maxUnsized bounds what is read of a file that says that it is empty, in bytes.
const maxUnsized = 16 << 20

// downloadUnsized gives a file that says that it is empty. Those of /proc are not.
func (d *Dialect) downloadUnsized(w http.ResponseWriter, r *http.Request, p string, modified time.Time) error {
	body, _, err := d.engine.ReadFile(r.Context(), targetOf(r.Context()).id, p, sandbox.ReadRange{})
	if err != nil {
		return fileError(err)
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxUnsized+1))
	switch {
	case err != nil:
		return fileError(err)
	case len(b) > maxUnsized:
		return &fault{status: http.StatusBadRequest, text: fmt.Sprintf("path '%s' says that it is empty, and has more than %d bytes", p, maxUnsized)}
	case packingOf(r.Header) == refused:
		return &fault{status: http.StatusNotAcceptable, text: "no acceptable encoding found, supported: gzip, identity"}
	}
	http.ServeContent(w, r, path.Base(p), modified, bytes.NewReader(b))
	return nil
}

// fileBody reads a file of a sandbox from wherever it is told to.
type fileBody struct {
	engine   Engine
	ctx      context.Context
	id, path string
	size, at int64
	open     io.ReadCloser // at at, or nil
	failed   error
}

func (b *fileBody) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += b.at
	case io.SeekEnd:
		offset += b.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	if offset != b.at {
		b.Close()
		b.at = offset
	}
	return offset, nil
}

func (b *fileBody) Read(p []byte) (n int, err error) {
	if b.at >= b.size {
		return 0, io.EOF
	}
	if b.open == nil {
		if b.open, _, err = b.engine.ReadFile(b.ctx, b.id, b.path, sandbox.ReadRange{Offset: b.at}); err != nil {
			b.failed = err
			return 0, err
		}
	}
	n, err = b.open.Read(p)
	b.at += int64(n)
	if err == io.EOF && b.at < b.size {
		err = io.ErrUnexpectedEOF // it has become shorter
	}
	if err != nil && err != io.EOF {
		b.failed = err
	}
	return n, err
}

// Close ends the reading; a later Read begins anew.
func (b *fileBody) Close() error {
	if b.open == nil {
		return nil
	}
	err := b.open.Close()
	b.open = nil
	return err
}

// Bounds on what is stored with a file.
const (
	maxMetadataKey   = 246
	maxMetadataBytes = 4096
)

// upload writes a file, or each file of a form.
func (d *Dialect) upload(w http.ResponseWriter, r *http.Request) error {
	t, err := d.fileTarget(r, r.URL.Query().Get("username"))
	if err != nil {
		return err
	}
	metadata, err := fileMetadata(r.Header)
	if err != nil {
		return err
	}
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return invalid("the body is not packed with gzip: " + err.Error())
		}
		defer z.Close()
		body = z
	}
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return invalid("Content-Type is multipart/form-data or application/octet-stream")
	}
	up := &upload{d: d, ctx: r.Context(), t: t, metadata: metadata, at: map[string]bool{}}
	switch kind {
	case "application/octet-stream":
		if !r.URL.Query().Has("path") {
			return invalid("path is required")
		}
		err = up.file(t.path(r.URL.Query().Get("path")), body)
	case "multipart/form-data":
		err = up.form(r.URL.Query().Get("path"), multipart.NewReader(body, params["boundary"]))
	default:
		err = &fault{status: http.StatusUnsupportedMediaType, text: "Content-Type is multipart/form-data or application/octet-stream"}
	}
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, up.done)
	return nil
}

// upload is one request that writes files.
type upload struct {
	d        *Dialect
	ctx      context.Context
	t        *target
	metadata map[string]string
	at       map[string]bool // where a part has been written
	done     []written
}

// form writes each part; its place is named by the request, or by the part.
func (u *upload) form(asked string, parts *multipart.Reader) error {
	for {
		part, err := parts.NextRawPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return invalid("the form cannot be read: " + err.Error())
		}
		if part.FormName() != "file" {
			continue
		}
		name := asked
		if name == "" {
			// Not FileName, which drops the folders.
			_, params, err := mime.ParseMediaType(part.Header.Get("Content-Disposition"))
			if name = params["filename"]; err != nil || name == "" {
				return invalid("a part of the form names no file")
			}
		}
		p := u.t.path(name)
		if u.at[p] {
			return invalid(fmt.Sprintf("you cannot upload multiple files to the same path '%s' in one upload request, only the first specified file was uploaded", p))
		}
		u.at[p] = true
		if err := u.file(p, part); err != nil {
			return err
		}
	}
}

func (u *upload) file(p string, body io.Reader) error {
	e, id := u.d.engine, u.t.id
	at, err := e.WriteFile(u.ctx, id, p, sandbox.WriteOptions{User: u.t.user, Parents: true, InPlace: true}, body)
	if err != nil {
		if fi, serr := e.Stat(u.ctx, id, p, true); serr == nil && fi.Type == sandbox.TypeDir {
			return &fault{status: http.StatusBadRequest, text: fmt.Sprintf("path is a directory: %s", p), err: err}
		}
		return u.t.fileUser(err)
	}
	if at.Attributed || len(u.metadata) > 0 {
		if err := u.annotate(p); err != nil {
			return fileError(err)
		}
	}
	u.done = append(u.done, written{Name: path.Base(p), Path: p, Type: "file", Metadata: u.metadata})
	return nil
}

// annotate gives a file the request's metadata in place of what it had.
func (u *upload) annotate(p string) error {
	e, id := u.d.engine, u.t.id
	old, err := e.FileAttributes(u.ctx, id, p)
	if err != nil {
		return err
	}
	change := sandbox.AttributeChange{Set: sandbox.Attributes{}}
	for key, value := range u.metadata {
		change.Set[attributePrefix+key] = []byte(value)
	}
	for name := range old {
		if _, stays := change.Set[name]; !stays && strings.HasPrefix(name, attributePrefix) {
			change.Remove = append(change.Remove, name)
		}
	}
	if len(change.Set)+len(change.Remove) == 0 {
		return nil
	}
	_, err = e.SetFileAttributes(u.ctx, id, p, change)
	return err
}

// fileMetadata reads the headers X-Metadata-<key>.
func fileMetadata(h http.Header) (map[string]string, error) {
	var out map[string]string
	total := 0
	for name, values := range h {
		key, ok := strings.CutPrefix(strings.ToLower(name), "x-metadata-")
		if !ok || key == "" {
			continue
		}
		value := values[0]
		total += len(key) + len(value)
		if len(key) > maxMetadataKey || total > maxMetadataBytes {
			return nil, invalid(fmt.Sprintf("metadata takes keys of %d bytes, and %d bytes in all", maxMetadataKey, maxMetadataBytes))
		}
		if strings.ContainsFunc(value, func(c rune) bool { return c < 0x20 || c > 0x7e }) {
			return nil, invalid("metadata " + key + ": values are printable ASCII")
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out, nil
}

// compose joins files into one, and removes them.
func (d *Dialect) compose(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Sources     []string `json:"source_paths"`
		Destination string   `json:"destination"`
		Username    string   `json:"username"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	t, err := d.fileTarget(r, body.Username)
	if err != nil {
		return err
	}
	if len(body.Sources) == 0 || body.Destination == "" {
		return invalid("source_paths and destination are required")
	}
	to := t.path(body.Destination)
	for i, source := range body.Sources {
		if err := d.appendFile(r.Context(), t, t.path(source), to, i > 0); err != nil {
			return err
		}
	}
	for _, source := range body.Sources {
		if err := d.engine.RemoveFile(r.Context(), t.id, t.path(source), false); err != nil {
			return fileError(err)
		}
	}
	writeJSON(w, http.StatusOK, written{Name: path.Base(to), Path: to, Type: "file"})
	return nil
}

func (d *Dialect) appendFile(ctx context.Context, t *target, from, to string, more bool) error {
	in, _, err := d.engine.ReadFile(ctx, t.id, from, sandbox.ReadRange{})
	if err != nil {
		return fileError(err)
	}
	defer in.Close()
	_, err = d.engine.WriteFile(ctx, t.id, to, sandbox.WriteOptions{User: t.user, Parents: true, InPlace: !more, Append: more}, in)
	return t.fileUser(err)
}

// fileTarget is the target of a request for a file, for a user that it names or "".
func (d *Dialect) fileTarget(r *http.Request, user string) (*target, error) {
	t := *targetOf(r.Context())
	t.user = cmp.Or(user, t.user)
	err := d.settleUser(r.Context(), &t)
	if errors.Is(err, errNoUser) {
		return nil, t.noFileUser(err)
	}
	return &t, fileError(err)
}

// fileUser puts an unknown user in these clients' words.
func (t *target) fileUser(err error) error {
	if noUser(err) {
		return t.noFileUser(err)
	}
	return fileError(err)
}

func (t *target) noFileUser(err error) error {
	return &fault{status: http.StatusUnauthorized, text: "error looking up user '" + printable(t.user) + "': invalid username", err: err}
}

// fileError gives a full disk the status that these clients know.
func fileError(err error) error {
	if sandbox.KindOf(err) == sandbox.Exhausted {
		return &fault{status: http.StatusInsufficientStorage, text: withHint(err.Error(), err), err: err}
	}
	return err
}

// unnamedFile reports whether a request is for a signed file URL that names no
// sandbox: the signature tells which one.
func (d *Dialect) unnamedFile(r *http.Request) bool {
	return r.URL.Path == "/files" && r.URL.Query().Has("signature") && !hasTarget(r)
}

// serveUnnamed finds the sandbox whose token made the signature.
func (d *Dialect) serveUnnamed(w http.ResponseWriter, r *http.Request) {
	if cors(w, r) {
		return
	}
	ctx := sandbox.WithCaller(r.Context(), sandbox.Operator())
	claim := signedOf(r.Method, r.URL.Query())
	q := sandbox.ListQuery{States: append(running(), aside()...), Limit: 1000}
	for {
		page, err := d.engine.List(ctx, q)
		if err != nil {
			d.render(w, r, err)
			return
		}
		for _, s := range page.Sandboxes {
			if claim.by(d.accessToken(s.ID)) {
				d.serveGuest(w, r, string(s.ID))
				return
			}
		}
		if q.After = page.Next; page.Next == "" {
			d.render(w, r, unauthorized("invalid signature"))
			return
		}
	}
}
