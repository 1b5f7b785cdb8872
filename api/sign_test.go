package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
	"github.com/berth-dev/berth/test/served"
)

// stranger sends a request without a key and returns the status.
func stranger(t *testing.T, s *served.Server, method, path, body string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

func TestSignedURLs(t *testing.T) {
	v := visit(t)
	box := v.create("")
	other := v.create("")
	for _, b := range []string{box, other} {
		v.do("PUT", b+"/files?path=/f%C3%BC%20%26", "0123456789", 200)
		v.do("PUT", b+"/files?path=/g", "secret", 200)
	}
	sign := func(body string) string {
		t.Helper()
		u := into[wire.SignedURL](t, v.do("POST", box+"/files/sign", body, 200))
		return u.URL
	}
	read := sign(`{"path":"/fü &","method":"read"}`)
	for _, method := range []string{"GET", "HEAD"} {
		if got := stranger(t, v.s, method, read, ""); got != 200 {
			t.Errorf("%s: %d", method, got)
		}
	}
	if got := stranger(t, v.s, "PUT", read, "x"); got != 403 {
		t.Errorf("write through a URL to read: %d", got)
	}
	write := sign(`{"path":"/new/w","method":"write","max_bytes":4}`)
	for body, want := range map[string]int{"12345": 400, "1234": 200} {
		if got := stranger(t, v.s, "PUT", write, body); got != want {
			t.Errorf("write %q: %d", body, got)
		}
	}
	if got := stranger(t, v.s, "GET", write, ""); got != 403 {
		t.Errorf("read through a URL to write: %d", got)
	}
	if got := stranger(t, v.s, "GET", sign(`{"path":"/fü &","method":"read","max_bytes":9}`), ""); got != 403 {
		t.Errorf("a file that is too large: %d", got)
	}

	// Nothing of it can be changed.
	id, otherID := strings.TrimPrefix(box, "/v1/sandboxes/"), strings.TrimPrefix(other, "/v1/sandboxes/")
	u, err := url.Parse(read)
	if err != nil {
		t.Fatal(err)
	}
	with := func(name, value string) string {
		q := u.Query()
		q.Set(name, value)
		return u.Path + "?" + q.Encode()
	}
	for what, changed := range map[string]string{
		"another sandbox": strings.Replace(read, id, otherID, 1), "another path": with("path", "/g"),
		"a later end": with("expires", "99999999999"), "another bound": with("max_bytes", "99"),
		"no signature": with("signature", ""), "a short signature": with("signature", u.Query().Get("signature")[:20]),
		"not base64": with("signature", "%%"), "the zero signature": with("signature", strings.Repeat("A", 43)),
	} {
		if got := stranger(t, v.s, "GET", changed, ""); got != 403 {
			t.Errorf("%s: %d", what, got)
		}
	}
	if got := stranger(t, v.s, "GET", read+"&more=1", ""); got != 400 {
		t.Errorf("an unknown parameter: %d", got)
	}
	if got := stranger(t, v.s, "GET", box+"/files?path=/g", ""); got != 403 && got != 401 {
		t.Errorf("without a signature: %d", got)
	}

	for what, body := range map[string]string{
		"method": `{"path":"/g","method":"delete"}`, "relative": `{"path":"g","method":"read"}`,
		"long": `{"path":"/g","method":"read","expires_seconds":604801}`, "negative": `{"path":"/g","method":"read","expires_seconds":-1}`,
		"negative bound": `{"path":"/g","method":"read","max_bytes":-1}`} {
		if e := into[wire.Error](t, v.do("POST", box+"/files/sign", body, 400)); e.Error.Code != sandbox.Invalid {
			t.Errorf("%s: %+v", what, e)
		}
	}
	v.do("POST", "/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa/files/sign", `{"path":"/g","method":"read"}`, 404)

	// Its time, then its sandbox, ends.
	v.s.API.SetTime(func() time.Time { return time.Now().Add(59 * time.Minute) })
	if got := stranger(t, v.s, "GET", read, ""); got != 200 {
		t.Errorf("within the hour: %d", got)
	}
	v.s.API.SetTime(func() time.Time { return time.Now().Add(time.Hour) })
	if got := stranger(t, v.s, "GET", read, ""); got != 403 {
		t.Errorf("after the hour: %d", got)
	}
	v.s.API.SetTime(time.Now)
	v.do("DELETE", box, "", 204)
	if got := stranger(t, v.s, "GET", read, ""); got != 404 {
		t.Errorf("after the removal: %d", got)
	}
}

// FuzzSigned: no query opens anything that was not signed.
func FuzzSigned(f *testing.F) {
	s := served.Start(f)
	for _, q := range []string{"path=/g&expires=9&signature=AAAA", "path_b64=L2c=&expires=99999999999&signature=" + strings.Repeat("A", 43), "signature=%00", "expires=-1"} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+"/v1/sandboxes/aaaaaaaaaaaaaaaaaaaa/files/signed", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.URL.RawQuery = query
		w := &recorder{h: http.Header{}}
		s.API.ServeHTTP(w, r)
		if w.status != 400 && w.status != 403 {
			t.Errorf("%q: %d", query, w.status)
		}
	})
}

type recorder struct {
	h      http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.h }
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }
