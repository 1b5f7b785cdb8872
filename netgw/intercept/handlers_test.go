package intercept

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

var handlerKey = bytes.Repeat([]byte{9}, minHandlerKey)

// handled is a rig whose host is decided by a handler at an address.
func handled(t *testing.T, decide http.HandlerFunc, rules ...sandbox.Inject) *rig {
	t.Helper()
	s := httptest.NewServer(decide)
	t.Cleanup(s.Close)
	rules = append([]sandbox.Inject{{Host: host, Handler: &sandbox.Handler{Name: "gate"}}}, rules...)
	return newRigWith(t, http.HandlerFunc(echo), Handlers{Named: map[string]Endpoint{"gate": {URL: s.URL + "/decide"}}, Key: handlerKey, Timeout: 5 * time.Second}, rules...)
}

func TestAHandlerDecides(t *testing.T) {
	r := handled(t, func(w http.ResponseWriter, q *http.Request) {
		h := w.Header()
		switch q.Header.Get("X-Case") {
		case "forward":
			h.Set("Berth-Decision", "forward")
		case "change":
			h.Set("Berth-Decision", "forward")
			h.Set("Berth-Method", "PUT")
			h.Set("Berth-Path", "/changed?x=1")
			h.Add("Berth-Set", "X-Query-Not: a")
			h.Add("Berth-Remove", "X-Case")
			h.Set("Berth-Replace", "body")
			io.WriteString(w, "another body")
		case "answer":
			h.Set("Berth-Decision", "answer")
			h.Set("X-Own", "yes")
			w.WriteHeader(http.StatusTeapot)
			io.WriteString(w, "its own answer")
		case "refuse":
			h.Set("Berth-Decision", "refuse")
			io.WriteString(w, "not today")
		case "slow":
			io.Copy(io.Discard, q.Body) // only then the server notices that nobody waits
			<-q.Context().Done()
		case "split":
			h.Set("Berth-Decision", "forward")
			h.Set("Berth-Set", "Host: evil.example.com")
		case "elsewhere":
			h.Set("Berth-Decision", "forward")
			h.Set("Berth-Path", "//evil.example.com/x")
		case "trace":
			h.Set("Berth-Decision", "forward")
			h.Set("Berth-Method", "TRACE")
		case "redirect":
			http.Redirect(w, q, "http://127.0.0.1:1/", http.StatusFound)
		case "broken":
			panic(http.ErrAbortHandler)
		}
	}, bearer())
	ask := func(which string) (*http.Response, string) {
		req := newRequest(t, "POST", "https://"+host+"/path?q=1", strings.NewReader("body"))
		req.Header.Set("X-Case", which)
		return r.request(r.client(false), req)
	}
	if resp, body := ask("forward"); resp.StatusCode != 200 || body != "body" || resp.Header.Get("X-Auth") != "Bearer "+token {
		t.Errorf("forward: %s %q %v", resp.Status, body, resp.Header)
	}
	resp, body := ask("change")
	if resp.StatusCode != 200 || body != "another body" || resp.Header.Get("X-Query") != "x=1" || resp.Header.Get("X-Auth") != "Bearer "+token {
		t.Errorf("change: %s %q %v", resp.Status, body, resp.Header)
	}
	if e := r.last(2); e.Method != "PUT" || e.Path != "/changed" {
		t.Errorf("change: %+v", e)
	}
	dialled := r.dials()
	resp, body = ask("answer")
	if resp.StatusCode != http.StatusTeapot || body != "its own answer" || resp.Header.Get("X-Own") != "yes" || resp.Header.Get("Berth-Decision") != "" {
		t.Errorf("answer: %s %q %v", resp.Status, body, resp.Header)
	}
	if e := r.last(3); e.Credential != "" || e.Rule != "handler gate" || e.Status != http.StatusTeapot {
		t.Errorf("answer: %+v", e)
	}
	if resp, body = ask("refuse"); resp.StatusCode != http.StatusForbidden || !strings.Contains(body, "not today") {
		t.Errorf("refuse: %s %q", resp.Status, body)
	}
	for _, which := range []string{"slow", "split", "elsewhere", "redirect", "broken", "silent"} {
		if resp, body = ask(which); resp.StatusCode != http.StatusBadGateway || strings.Contains(body, "127.0.0.1") {
			t.Errorf("%s: %s %q", which, resp.Status, body)
		}
	}
	if resp, body = ask("trace"); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("trace: %s %q", resp.Status, body)
	}
	if r.dials() != dialled {
		t.Error("what was not forwarded reached the server")
	}
}

func TestWhatAHandlerIsTold(t *testing.T) {
	var got http.Header
	var shown []byte
	r := handled(t, func(w http.ResponseWriter, q *http.Request) {
		got, shown = q.Header.Clone(), nil
		shown, _ = io.ReadAll(q.Body)
		w.Header().Set("Berth-Decision", "forward")
	}, bearer())
	req := newRequest(t, "POST", "https://"+host+"/p%2Fx?q=1", strings.NewReader("body"))
	req.Header.Set("Berth-Sandbox", "forged")
	req.Header.Set("Berth-Account", "forged")
	req.Header.Set("Berth-Anything", "forged")
	r.request(r.client(false), req)
	if got.Get("Berth-Sandbox") != string(r.id) || got.Get("Berth-Name") != "box" || got.Get("Berth-Account") != "main" ||
		got.Get("Berth-Url") != "https://"+host+"/p%2Fx?q=1" || got.Get("Berth-Body") != "whole" || got.Get("Berth-Anything") != "" || string(shown) != "body" {
		t.Errorf("%v %q", got, shown)
	}
	if strings.Contains(fmt.Sprint(got), token) {
		t.Error("the handler was told the secret")
	}
	sum := sha256.Sum256(shown)
	mac := hmac.New(sha256.New, handlerKey)
	fmt.Fprintf(mac, "v1\n%s\n%s\nmain\nPOST\nhttps://%s/p%%2Fx?q=1\n%x", got.Get("Berth-Timestamp"), r.id, host, sum)
	if got.Get("Berth-Signature") != hex.EncodeToString(mac.Sum(nil)) {
		t.Errorf("signature %q", got.Get("Berth-Signature"))
	}
	long := strings.Repeat("x", maxShown+1)
	_, body := r.request(r.client(false), newRequest(t, "POST", "https://"+host+"/", strings.NewReader(long)))
	if body != long || got.Get("Berth-Body") != "withheld" || len(shown) != 0 {
		t.Errorf("a long body: %d bytes came through, %d were shown as %q", len(body), len(shown), got.Get("Berth-Body"))
	}
}

func TestAChangedRequestIsJudgedAgain(t *testing.T) {
	r := handled(t, func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Berth-Decision", "forward")
		w.Header().Set("Berth-Path", "/admin")
	})
	r.set(func() {
		r.judge = func(_, _, path string) Judgement { return Judgement{Allowed: path != "/admin", Reason: "denied"} }
	})
	if resp, _ := r.get("/"); resp.StatusCode != http.StatusForbidden {
		t.Error(resp.Status)
	}
}

func program(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "handler")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755))
	return []string{path, "argument"}
}

func TestAProgramDecides(t *testing.T) {
	t.Setenv("BERTH_SERVERS_OWN", "hush")
	for name, c := range map[string]struct {
		text, body string
		status     int
	}{
		"forward": {`printf 'Berth-Decision: forward\n\n'`, "body", 200},
		"answer": {`printf 'Status: 418 no\nContent-Type: text/plain\nBerth-Decision: answer\n\n%s %s %s %s ' "$1" "$REQUEST_METHOD" "$HTTP_BERTH_URL" "$BERTH_SERVERS_OWN"; cat`,
			"argument POST https://" + host + "/  body", 418},
		"fails":      {`exit 1`, "", 502},
		"silent":     {`:`, "", 502},
		"undecided":  {`printf 'Status: 200\n\n'`, "", 502},
		"hangs":      {`sleep 60 & wait`, "", 502},
		"much":       {`head -c 20000000 /dev/zero`, "", 502},
		"bad status": {`printf 'Status: x\nBerth-Decision: answer\n\n'`, "", 502},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, http.HandlerFunc(echo), Handlers{Named: map[string]Endpoint{"gate": {Program: program(t, c.text)}}, Key: handlerKey, Timeout: time.Second},
				sandbox.Inject{Host: host, Handler: &sandbox.Handler{Name: "gate"}})
			resp, body := r.request(r.client(false), newRequest(t, "POST", "https://"+host+"/", strings.NewReader("body")))
			if resp.StatusCode != c.status || (c.status != 502 && body != c.body) {
				t.Errorf("%s %q", resp.Status, body)
			}
		})
	}
}

func TestAHandlerOfTheCallersOwn(t *testing.T) {
	var got http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		got = q.Header.Clone()
		w.Header().Set("Berth-Decision", "answer")
	}))
	t.Cleanup(s.Close)
	rule := sandbox.Inject{Host: host, Handler: &sandbox.Handler{URL: s.URL, Secret: "k", Plain: true}}
	r := newRigWith(t, http.HandlerFunc(echo), Handlers{Dial: new(net.Dialer).DialContext}, rule)
	must(t, r.p.Check(t.Context(), sandbox.MainAccount, &r.policy))
	r.get("/")
	mac := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(mac, "v1\n%s\n%s\nmain\nGET\nhttps://%s/\n%x", got.Get("Berth-Timestamp"), r.id, host, sha256.Sum256(nil))
	if got.Get("Berth-Signature") != hex.EncodeToString(mac.Sum(nil)) {
		t.Errorf("signature %q", got.Get("Berth-Signature"))
	}
	got = nil
	r.set(func() { r.flowTLS = false })
	r.request(r.client(false), newRequest(t, "GET", "http://"+host+":443/plain", nil))
	if got.Get("Berth-Url") != "http://"+host+":443/plain" {
		t.Errorf("over plain text it was told %v", got)
	}
	got = nil
	r.set(func() { r.policy.Inject = []sandbox.Inject{{Host: host, Handler: &sandbox.Handler{URL: s.URL}}} })
	if resp, err := r.client(false).Do(newRequest(t, "GET", "http://"+host+":443/", nil)); err == nil {
		resp.Body.Close()
	}
	if got != nil {
		t.Error("it was asked about plain text")
	}
}

func TestHandlersThatCannotBe(t *testing.T) {
	for name, h := range map[string]Handlers{
		"no key":   {Named: map[string]Endpoint{"a": {URL: "http://x"}}},
		"both":     {Named: map[string]Endpoint{"a": {URL: "http://x", Program: []string{"/x"}}}, Key: handlerKey},
		"neither":  {Named: map[string]Endpoint{"a": {}}, Key: handlerKey},
		"a file":   {Named: map[string]Endpoint{"a": {URL: "file:///x"}}, Key: handlerKey},
		"a name":   {Named: map[string]Endpoint{"A/b": {URL: "http://x"}}, Key: handlerKey},
		"relative": {Named: map[string]Endpoint{"a": {Program: []string{"sh"}}}, Key: handlerKey},
		"too slow": {Timeout: time.Hour},
	} {
		if _, err := newHandlers(h, nil, time.Now); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParseCGI(f *testing.F) {
	f.Add([]byte("Status: 200 OK\r\nBerth-Decision: forward\r\n\r\nbody"))
	f.Add([]byte("a\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseCGI(b)
		if (d == nil) == (err == nil) {
			t.Fatalf("%v, %v", d, err)
		}
		if d != nil && (d.status < 200 || d.status > 599) {
			t.Fatalf("status %d", d.status)
		}
	})
}
