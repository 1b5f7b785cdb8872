package api

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// signer makes and checks URLs that open one file for a time, without a key.
type signer struct {
	key []byte // of HMAC-SHA256; nil signs nothing
	now func() time.Time
}

// MinSignSecret is the least number of bytes of Config.SignSecret.
const MinSignSecret = 32

// newSigner derives the key from the server's secret, which may serve others too.
func newSigner(secret []byte) *signer {
	s := &signer{now: time.Now}
	if len(secret) < MinSignSecret {
		return s
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "berth file url 1", sha256.Size)
	if err != nil {
		panic(err) // only for a length that no hash gives
	}
	s.key = key
	return s
}

// grant is what a signed URL allows.
type grant struct {
	id       string
	path     string
	method   string
	expires  int64 // seconds since 1970
	maxBytes int64 // 0: no bound
}

// sum is the signature of a grant. Every part has one way to be read: the path,
// which may hold anything, comes last.
func (s *signer) sum(g grant) []byte {
	m := hmac.New(sha256.New, s.key)
	fmt.Fprintf(m, "%s\n%s\n%d\n%d\n%s", g.id, g.method, g.expires, g.maxBytes, g.path)
	return m.Sum(nil)
}

// sign returns the path and query of the URL.
func (s *signer) sign(g grant) string {
	v := url.Values{"path": {g.path}, "expires": {strconv.FormatInt(g.expires, 10)},
		"signature": {base64.RawURLEncoding.EncodeToString(s.sum(g))}}
	if g.maxBytes > 0 {
		v.Set("max_bytes", strconv.FormatInt(g.maxBytes, 10))
	}
	return "/v1/sandboxes/" + url.PathEscape(g.id) + "/files/signed?" + v.Encode()
}

// check reports what is wrong with a signature. The time is looked at last: a
// stranger learns nothing from a URL that was never signed.
func (s *signer) check(g grant, signature string) error {
	given, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil || s.key == nil || !hmac.Equal(given, s.sum(g)) {
		return forbidden("the signature does not fit", "use the URL as it was signed, for the sandbox, file and method it was signed for")
	}
	if s.now().Unix() >= g.expires {
		return forbidden("the URL has expired", "have it signed again")
	}
	return nil
}

const defaultExpiry = time.Hour

// signFile answers with a URL that opens one file without a key.
func (a *API) signFile(w http.ResponseWriter, r *http.Request) error {
	const op = "sign URL"
	var req wire.SignFile
	if err := decode(w, r, &req); err != nil {
		return err
	}
	g := grant{path: sandbox.Exact(req.Path, req.PathB64), method: req.Method, maxBytes: req.MaxBytes}
	most := int64(sandbox.MaxSignedURLExpiry / time.Second)
	switch {
	case a.signer.key == nil:
		return sandbox.Errorf(op, sandbox.Unsupported, "this server has no secret to sign with")
	case req.Method != wire.SignRead && req.Method != wire.SignWrite:
		return &sandbox.Error{Op: op, Kind: sandbox.Invalid, Err: fmt.Errorf("%.40q is not a method", req.Method), Hint: "the methods are read and write"}
	case req.ExpiresSeconds < 0 || req.ExpiresSeconds > most:
		return sandbox.Errorf(op, sandbox.Invalid, "expires_seconds is %d, 1 to %d are taken", req.ExpiresSeconds, most)
	case req.MaxBytes < 0:
		return sandbox.Errorf(op, sandbox.Invalid, "max_bytes is negative")
	}
	if err := sandbox.CheckPath(g.path); err != nil {
		return &sandbox.Error{Op: op, Err: err}
	}
	box, err := a.engine.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	g.id = string(box.ID)
	life := defaultExpiry
	if req.ExpiresSeconds > 0 {
		life = time.Duration(req.ExpiresSeconds) * time.Second
	}
	expires := a.signer.now().Add(life).Truncate(time.Second)
	g.expires = expires.Unix()
	return writeJSON(w, http.StatusOK, wire.SignedURL{URL: a.signer.sign(g), Method: g.method, Expires: expires.UTC()})
}

// granted reads and checks what the URL of a request allows.
func (a *API) granted(r *http.Request, method string) (grant, error) {
	q := queryOf(r)
	g := grant{id: r.PathValue("id"), method: method, path: q.path("path"),
		expires: q.number("expires", 10, 64), maxBytes: q.number("max_bytes", 10, 64)}
	signature := q.text("signature")
	if err := q.check(); err != nil {
		return g, err
	}
	return g, a.signer.check(g, signature)
}

// asGranted lets a request do what its URL was signed for: the signature has been
// checked, and the handlers take the sandbox and the path from what it covers.
func asGranted(r *http.Request) *http.Request {
	return r.WithContext(sandbox.WithCaller(r.Context(), sandbox.Operator()))
}

// readSigned serves a file to whoever has its URL. A browser keeps it as a file
// and never shows it as a page of this server's.
func (a *API) readSigned(w http.ResponseWriter, r *http.Request) error {
	g, err := a.granted(r, wire.SignRead)
	if err != nil {
		return err
	}
	r = asGranted(r)
	if g.maxBytes > 0 {
		fi, err := a.statFile(r, g.path)
		if err != nil {
			return err
		}
		if fi.Size > g.maxBytes {
			return forbidden(fmt.Sprintf("the file has %d bytes, the URL allows %d", fi.Size, g.maxBytes), "have a URL signed without that bound")
		}
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(g.path)}))
	if r.Method == http.MethodHead {
		return a.showFile(w, r, g.path)
	}
	return a.sendFile(w, r, g.path)
}

// writeSigned stores a file for whoever has its URL.
func (a *API) writeSigned(w http.ResponseWriter, r *http.Request) error {
	g, err := a.granted(r, wire.SignWrite)
	if err != nil {
		return err
	}
	r = asGranted(r)
	body := io.Reader(r.Body)
	if g.maxBytes > 0 {
		if r.ContentLength > g.maxBytes {
			return tooLarge(g.maxBytes)
		}
		body = http.MaxBytesReader(w, r.Body, g.maxBytes)
	}
	fi, err := a.engine.WriteFile(r.Context(), g.id, g.path, sandbox.WriteOptions{Parents: true}, body)
	var over *http.MaxBytesError
	if errors.As(err, &over) {
		return tooLarge(g.maxBytes)
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, fi)
}

func tooLarge(most int64) error {
	return &sandbox.Error{Op: "write file", Kind: sandbox.Invalid, Err: fmt.Errorf("the body has more than the %d bytes that the URL allows", most),
		Hint: "nothing was written"}
}
