package bridge

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// fileOf is the file that a request's path names.
func fileOf(r *http.Request) (string, error) {
	if _, err := sessionOf(r); err != nil {
		return "", err
	}
	rest := r.PathValue("*")
	if rest == "" {
		return "", invalid("file path must not be empty")
	}
	name, ok := inWorkspace("/" + rest)
	if !ok {
		return "", forbidden("path must resolve to a location within " + workspace)
	}
	if err := sandbox.CheckPath(name); err != nil {
		return "", &fault{status: http.StatusBadRequest, code: codeInvalid, text: "bad path", err: err}
	}
	return name, nil
}

// readFile sends a file's bytes.
func (b *Bridge) readFile(w http.ResponseWriter, r *http.Request) error {
	name, err := fileOf(r)
	if err != nil {
		return err
	}
	id, err := b.box(r)
	if err != nil {
		return err
	}
	body, info, err := b.Engine.ReadFile(r.Context(), id, name, sandbox.ReadRange{})
	if sandbox.KindOf(err) == sandbox.NotFound {
		return &fault{status: http.StatusNotFound, code: codeNoFile, text: "file not found: " + name}
	}
	if err != nil {
		return failed("read failed", codeRead, err)
	}
	defer body.Close()
	return sendBody(w, "application/octet-stream", body, info.Size)
}

// sendBody answers with what body gives, length bytes of it; less than 0 means all.
// What is cut short is an error, as is a client that takes nothing.
func sendBody(w http.ResponseWriter, kind string, body io.Reader, length int64) error {
	w.Header().Set("Content-Type", kind)
	if length >= 0 {
		w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
		body = io.LimitReader(body, length)
	}
	w.WriteHeader(http.StatusOK)
	n, err := io.Copy(&paced{w, http.NewResponseController(w)}, body)
	if err == nil && n < length {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// paced gives up on a client that takes nothing for writeTime.
type paced struct {
	w  io.Writer
	rc *http.ResponseController
}

func (p *paced) Write(b []byte) (int, error) {
	if err := p.rc.SetWriteDeadline(time.Now().Add(writeTime)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	return p.w.Write(b)
}

// errTooLarge is the error of a body that has more than maxPayload bytes.
type errTooLarge struct{ size int64 } // 0: it was not told

func (e errTooLarge) Error() string {
	if e.size == 0 {
		return fmt.Sprintf("payload too large: it exceeds the %d-byte limit", maxPayload)
	}
	return fmt.Sprintf("payload too large: %d bytes exceeds the %d-byte limit", e.size, maxPayload)
}

// payload is a request's body, with an error of type errTooLarge if it is too large.
func payload(w http.ResponseWriter, r *http.Request) (*bufio.Reader, error) {
	if r.ContentLength > maxPayload {
		return nil, errTooLarge{r.ContentLength}
	}
	return bufio.NewReader(&bounded{http.MaxBytesReader(w, r.Body, maxPayload)}), nil
}

// bounded names the error of a body that is too large.
type bounded struct{ r io.Reader }

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		err = errTooLarge{}
	}
	return n, err
}

// writeFile writes a file, whole or not at all.
func (b *Bridge) writeFile(w http.ResponseWriter, r *http.Request) error {
	name, err := fileOf(r)
	if err != nil {
		return err
	}
	body, err := payload(w, r)
	if err != nil {
		return &fault{status: http.StatusRequestEntityTooLarge, code: codeLarge, text: err.Error()}
	}
	id, err := b.box(r)
	if err != nil {
		return err
	}
	_, err = b.Engine.WriteFile(r.Context(), id, name, sandbox.WriteOptions{User: user, Parents: true}, body)
	var large errTooLarge
	if errors.As(err, &large) {
		return &fault{status: http.StatusRequestEntityTooLarge, code: codeLarge, text: large.Error()}
	}
	if err != nil {
		return failed("write failed", codeWrite, err)
	}
	return writeJSON(w, ok{true})
}

// persist sends the workspace as a tar stream.
func (b *Bridge) persist(w http.ResponseWriter, r *http.Request) error {
	excludes, err := excludesOf(r.URL.Query().Get("excludes"))
	if err != nil {
		return err
	}
	id, err := b.box(r)
	if err != nil {
		return err
	}
	body, err := b.Engine.Archive(r.Context(), id, workspace, sandbox.ArchiveOptions{Excludes: excludes})
	if err != nil {
		return failed("persist failed", codeRead, err)
	}
	defer body.Close()
	return sendBody(w, "application/octet-stream", body, -1)
}

// literal undoes what a pattern would read in a name.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`, `{`, `\{`, `}`, `\}`)

// excludesOf is a list of paths beneath the workspace, as patterns of an archive.
func excludesOf(list string) ([]string, error) {
	var all []string
	for one := range strings.SplitSeq(list, ",") {
		one = strings.Trim(strings.TrimPrefix(strings.TrimSpace(one), "./"), "/")
		if one == "" || one == "." {
			continue
		}
		for part := range strings.SplitSeq(one, "/") {
			if part == ".." {
				return nil, invalid(`exclude paths must not contain ".."`)
			}
		}
		all = append(all, "/"+literal.Replace(one))
	}
	if err := sandbox.CheckExcludes(all); err != nil {
		return nil, &fault{status: http.StatusBadRequest, code: codeInvalid, text: "bad excludes", err: err}
	}
	return all, nil
}

// hydrate unpacks a tar stream into the workspace, over what is there.
func (b *Bridge) hydrate(w http.ResponseWriter, r *http.Request) error {
	body, err := payload(w, r)
	if err != nil {
		return invalid("tar " + err.Error())
	}
	if _, err := body.Peek(1); errors.Is(err, io.EOF) {
		return invalid("Empty tar payload")
	}
	id, err := b.box(r)
	if err != nil {
		return err
	}
	_, err = b.Engine.Unpack(r.Context(), id, workspace, sandbox.UnpackOptions{User: user, KeepOwner: true}, body)
	var large errTooLarge
	if errors.As(err, &large) {
		return invalid("tar " + large.Error())
	}
	if err != nil {
		return failed("hydrate failed", codeWrite, err)
	}
	return writeJSON(w, ok{true})
}
