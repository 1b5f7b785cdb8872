package intercept

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/berth-dev/berth/sandbox"
)

func masked(i *sandbox.Inject) { i.Mask = true }

func TestAnswersThatRepeatTheSecret(t *testing.T) {
	quoted, err := json.Marshal(token)
	must(t, err)
	forms := map[string]string{
		"plain": token, "query": url.QueryEscape(token), "query, lower": strings.ToLower(url.QueryEscape("+/==")),
		"path": url.PathEscape(token), "hex": hex.EncodeToString([]byte(token)), "JSON": string(quoted[1 : len(quoted)-1]),
		"basic": base64.StdEncoding.EncodeToString([]byte("user:" + token)), "base64": base64.StdEncoding.EncodeToString([]byte(token)),
		"base64 within": base64.URLEncoding.EncodeToString([]byte("ab" + token + "cd")), "Bearer": "Bearer " + token,
	}
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		form := q.URL.Query().Get("form")
		w.Header().Set("X-Repeat", forms[form])
		w.Header().Set("Content-Type", "text/plain")
		text := "before " + forms[form] + " after"
		if form == "path" { // cut anywhere
			for _, b := range []byte(text) {
				w.Write([]byte{b})
				w.(http.Flusher).Flush()
			}
			return
		}
		io.WriteString(w, text)
	}), bearer(masked))
	for name, form := range forms {
		if name == "query, lower" {
			continue
		}
		resp, body := r.get("/?form=" + url.QueryEscape(name))
		for what, s := range map[string]string{"body": body, "header": resp.Header.Get("X-Repeat")} {
			if strings.Contains(s, token) || strings.Contains(s, form) || !strings.Contains(s, "****") {
				t.Errorf("%s: the %s is %q", name, what, s)
			}
			if dec, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(strings.TrimPrefix(s, "before "), " after")); err == nil && strings.Contains(string(dec), token[4:12]) {
				t.Errorf("%s: the %s decodes to %q", name, what, dec)
			}
		}
		if len(body) != len("before  after")+len(form) || !strings.HasPrefix(body, "before ") || !strings.HasSuffix(body, " after") {
			t.Errorf("%s: more than the secret changed: %q", name, body)
		}
	}
}

func TestMaskedAnswersAreNotCompressed(t *testing.T) {
	var asked, ranged string
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		asked, ranged = q.Header.Get("Accept-Encoding"), q.Header.Get("Range")
		kind := strings.TrimPrefix(q.URL.Path, "/")
		if kind == "" {
			return
		}
		w.Header().Set("Content-Encoding", kind)
		z := gzip.NewWriter(w)
		io.WriteString(z, strings.Repeat("x", 100_000)+token)
		z.Close()
	}), bearer(masked))
	req := newRequest(t, "GET", "https://"+host+"/", nil)
	req.Header.Set("Accept-Encoding", "gzip, br")
	req.Header.Set("Range", "bytes=0-3")
	r.request(r.client(false), req)
	if asked != "identity" || ranged != "" {
		t.Errorf("the server was asked for %q, range %q", asked, ranged)
	}
	resp, body := r.get("/gzip")
	if resp.Header.Get("Content-Encoding") != "" || !strings.HasSuffix(body, "x"+strings.Repeat("*", len(token))) || len(body) != 100_000+len(token) {
		t.Errorf("%v, %d bytes", resp.Header, len(body))
	}
	if resp, body := r.get("/br"); resp.StatusCode != http.StatusBadGateway || strings.Contains(body, token) {
		t.Errorf("what cannot be read: %s", resp.Status)
	}
}

func TestAShortSecretIsNotMasked(t *testing.T) {
	r := newRig(t, http.HandlerFunc(echo), bearer(masked))
	r.put("k", "short")
	if resp, _ := r.get("/"); resp.StatusCode != http.StatusBadGateway {
		t.Errorf("%s", resp.Status)
	}
}

func TestMaskedWhereNothingWasAdded(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, token) }),
		bearer(masked, func(i *sandbox.Inject) { i.Methods = []string{"POST"} }))
	if _, body := r.get("/"); body != strings.Repeat("*", len(token)) {
		t.Errorf("%q", body)
	}
}

func TestReplacerAcrossBorders(t *testing.T) {
	rp := &replacer{}
	rp.add([]byte("secret"), []byte("******"))
	rp.add([]byte("secretly"), []byte("LY"))
	rp.add([]byte("aab"), []byte("!"))
	for in, want := range map[string]string{
		"":                          "",
		"no":                        "no",
		"secret":                    "******",
		"a secret, secretly":        "a ******, LY",
		"secre":                     "secre",
		"secresecretsecret":         "secre************",
		"aaab":                      "a!",
		"aaaaaabaab":                "aaaa!!",
		"ssecretl":                  "s******l",
		strings.Repeat("secret", 9): strings.Repeat("******", 9),
	} {
		if got := string(rp.text([]byte(in))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
		for name, src := range map[string]io.Reader{
			"byte by byte": iotest.OneByteReader(strings.NewReader(in)), "halves": iotest.HalfReader(strings.NewReader(in)),
			"with its end": iotest.DataErrReader(strings.NewReader(in)),
		} {
			if got, err := io.ReadAll(rp.reader(src)); string(got) != want || err != nil {
				t.Errorf("%q %s became %q, %v, want %q", in, name, got, err, want)
			}
		}
	}
	if _, err := io.ReadAll(rp.reader(iotest.TimeoutReader(strings.NewReader("xx")))); err != iotest.ErrTimeout && err != nil {
		t.Error(err)
	}
}

func FuzzReplacer(f *testing.F) {
	f.Add([]byte("a secret in the text"), []byte("secret"), []byte("et in"), uint8(3))
	f.Add([]byte("aaaaaaaaaab"), []byte("aab"), []byte("aaaab"), uint8(1))
	f.Fuzz(func(t *testing.T, text, one, two []byte, step uint8) {
		if len(one) == 0 || len(two) == 0 || bytes.Equal(one, two) {
			return
		}
		rp := &replacer{}
		rp.add(one, bytes.Repeat([]byte{'*'}, len(one)))
		rp.add(two, bytes.Repeat([]byte{'*'}, len(two)))
		whole := rp.text(text)
		parts, err := io.ReadAll(rp.reader(&stepped{text, int(step%7) + 1}))
		if err != nil || !bytes.Equal(whole, parts) {
			t.Fatalf("at once %q, in parts %q, %v", whole, parts, err)
		}
		if len(whole) != len(text) {
			t.Fatalf("%d bytes became %d", len(text), len(whole))
		}
		for _, s := range [][]byte{one, two} {
			if !bytes.Contains(s, []byte("*")) && bytes.Contains(whole, s) {
				t.Fatalf("%q is left in %q", s, whole)
			}
		}
	})
}

// stepped gives so many bytes at a time.
type stepped struct {
	b []byte
	n int
}

func (s *stepped) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.b[:min(s.n, len(s.b))])
	s.b = s.b[n:]
	return n, nil
}

func BenchmarkMask(b *testing.B) {
	m := &mask{}
	must(b, m.hide(sandbox.SecretValue(token)))
	text := []byte(strings.Repeat(fmt.Sprintf("%0100d ghp_ and more\n", 7), 8192))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		io.Copy(io.Discard, m.reader(bytes.NewReader(text)))
	}
}
