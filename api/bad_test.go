package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
	"github.com/berth-dev/berth/test/served"
)

// TestBadInput: each case says what is sent and what must come back.
func TestBadInput(t *testing.T) {
	v := visit(t)
	box := v.create("")
	gone := "/v1/sandboxes/" + string(sandbox.NewID())
	for _, c := range []struct {
		name, method, path, body string
		status                   int
		says                     string // in the message or the hint
	}{
		{"unknown template", "POST", "/v1/sandboxes", `{"template":"nope"}`, 404, "nope"},
		{"template with a path", "POST", "/v1/sandboxes", `{"template":"../x"}`, 400, "is not a name"},
		{"unknown class", "POST", "/v1/sandboxes", `{"class":"tape"}`, 400, "fake"},
		{"negative limit", "POST", "/v1/sandboxes", `{"limits":{"memory_bytes":-1}}`, 400, "memory_bytes"},
		{"tiny limit", "POST", "/v1/sandboxes", `{"limits":{"processes":1}}`, 400, "32"},
		{"unknown field", "POST", "/v1/sandboxes", `{"tmplate":"base"}`, 400, `"tmplate"`},
		{"wrong type", "POST", "/v1/sandboxes", `{"template":7}`, 400, "template"},
		{"not JSON", "POST", "/v1/sandboxes", `template=base`, 400, "JSON"},
		{"two objects", "POST", "/v1/sandboxes", `{}{}`, 400, "more after"},
		{"large body", "POST", "/v1/sandboxes", `{"env":{"A":"` + strings.Repeat("x", 5<<20) + `"}}`, 400, "4194304 bytes"},
		{"huge argv", "POST", box + "/exec", `{"argv":["` + strings.Repeat("x", 10<<20) + `"]}`, 400, "file"},
		{"large argv", "POST", box + "/exec", `{"argv":["` + strings.Repeat("x", 2<<20) + `"]}`, 400, "file"},
		{"many arguments", "POST", box + "/exec", `{"argv":["x"` + strings.Repeat(`,""`, 20000) + `]}`, 400, "16384"},
		{"no command", "POST", box + "/exec", `{}`, 400, "argv"},
		{"two commands", "POST", box + "/exec", `{"argv":["a"],"shell":"b"}`, 400, "exactly one"},
		{"empty exec", "POST", box + "/exec", ``, 400, "empty"},
		{"relative cwd", "POST", box + "/exec", `{"argv":["true"],"cwd":"tmp"}`, 400, "absolute"},
		{"NUL in argv", "POST", box + "/exec", `{"argv":["a\u0000b"]}`, 400, "NUL"},
		{"bad variable", "POST", box + "/exec", `{"argv":["true"],"env":{"A=B":""}}`, 400, "A=B"},
		{"negative timeout", "POST", box + "/exec", `{"argv":["true"],"timeout_ms":-1}`, 400, "timeout_ms"},
		{"endless timeout", "POST", box + "/exec", `{"argv":["true"],"timeout_ms":9223372036854775807}`, 400, "timeout_ms"},
		{"no such program", "POST", box + "/exec", `{"argv":["/no/such"]}`, 404, "/no/such"},
		{"bad id", "GET", "/v1/sandboxes/no%20pe", "", 400, "20 characters"},
		{"nobody's name", "GET", "/v1/sandboxes/nope", "", 404, "nope"},
		{"id with a path", "GET", "/v1/sandboxes/..%2F..%2Fetc%2Fpasswd", "", 400, "20 characters"},
		{"id in capitals", "GET", "/v1/sandboxes/" + strings.Repeat("A", 20), "", 400, "a-z"},
		{"unknown id", "GET", gone, "", 404, "berth ls"},
		{"exec in an unknown id", "POST", gone + "/exec", `{"argv":["true"]}`, 404, "berth ls"},
		{"file in an unknown id", "PUT", gone + "/files?path=/x", `x`, 404, "berth ls"},
		{"zero page", "GET", "/v1/sandboxes?limit=0", "", 400, "1 to 1000"},
		{"negative page", "GET", "/v1/sandboxes?limit=-5", "", 400, "limit"},
		{"large page", "GET", "/v1/sandboxes?limit=1001", "", 400, "1 to 1000"},
		{"page of words", "GET", "/v1/sandboxes?limit=ten", "", 400, "limit"},
		{"two limits", "GET", "/v1/sandboxes?limit=1&limit=2", "", 400, "once"},
		{"unknown parameter", "GET", "/v1/sandboxes?colour=red", "", 400, "colour"},
		{"malformed query", "GET", "/v1/sandboxes?a=%zz", "", 400, "malformed"},
		{"unknown state", "GET", "/v1/sandboxes?state=asleep", "", 400, "asleep"},
		{"bad cursor", "GET", "/v1/sandboxes?after=x", "", 400, "cursor"},
		{"relative path", "GET", box + "/files?path=etc/passwd", "", 400, "absolute"},
		{"no path", "GET", box + "/files/stat", "", 400, "absolute"},
		{"path with a NUL", "GET", box + "/files?path=/a%00b", "", 400, "NUL"},
		{"long path", "GET", box + "/files?path=/" + strings.Repeat("x", 5000), "", 400, "4096"},
		{"relative target", "POST", box + "/files/move", `{"from":"/a","to":"b"}`, 400, "absolute"},
		{"bad mode", "PUT", box + "/files?path=/x&mode=rw", "x", 400, "octal"},
		{"large mode", "PUT", box + "/files?path=/x&mode=777777", "x", 400, "permission"},
		{"bad boolean", "GET", box + "/files/stat?path=/&follow=maybe", "", 400, "maybe"},
		{"zero depth", "GET", box + "/files/list?path=/&depth=0", "", 400, "1 to 64"},
		{"negative offset", "GET", box + "/processes/x/output?stdout=-1", "", 400, "stdout"},
		{"directory as a file", "GET", box + "/files?path=/", "", 400, "folder"},
		{"no signal", "POST", box + "/processes/x/signal", `{}`, 400, "SIGTERM"},
		{"bad template name", "POST", "/v1/templates", `{"name":"A b","from":"oci:x"}`, 400, "a-z"},
		{"bad source", "POST", "/v1/templates", `{"name":"x","from":"tape"}`, 400, "distribution"},
		{"relative archive", "POST", "/v1/templates", `{"name":"x","from":"oci-archive:x"}`, 400, "absolute"},
		{"no such route", "GET", "/v1/nothing", "", 404, "openapi"},
		{"wrong method", "PUT", "/v1/sandboxes", "", 404, "takes GET, POST"},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := &visitor{t, v.s, v.c}
			b := v.do(c.method, c.path, c.body, c.status)
			e := into[wire.Error](t, b).Error
			if !strings.Contains(e.Message+" "+e.Hint, c.says) || e.RequestID == "" {
				t.Errorf("%s\ndoes not say %q", b, c.says)
			}
		})
	}
}

func TestWrongKeys(t *testing.T) {
	v := visit(t)
	for _, auth := range []string{"", "Bearer", "Bearer ", "Bearer " + served.Key[:45], "Bearer " + served.Key + "0", "Basic " + served.Key, served.Key} {
		r := v.s.Request(t, "GET", "/v1/status", "")
		r.Header.Set("Authorization", auth)
		h, b := v.send(r, 401)
		if e := into[wire.Error](t, b).Error; e.Code != sandbox.Unauthorized || e.Hint == "" || h.Get("WWW-Authenticate") != "Bearer" {
			t.Errorf("%q: %s", auth, b)
		}
	}
	if strings.Contains(v.s.Log.String(), served.Key[:20]) {
		t.Error("the log holds a key")
	}
	keyless := httptest.NewServer(api.New(api.Config{Engine: v.s.Engine}))
	defer keyless.Close()
	r, _ := http.NewRequestWithContext(t.Context(), "GET", keyless.URL+"/v1/status", nil)
	r.Header.Set("Authorization", "Bearer ")
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 401 {
		t.Errorf("a server without a key answers %v, %v", resp, err)
	}
}

func TestOtherSites(t *testing.T) {
	v := visit(t)
	for name, c := range map[string]struct {
		host, header, value string
		status              int
	}{
		"rebound name":        {"evil.example:7070", "", "", 403},
		"own domain":          {"berth.test:7070", "", "", 200},
		"beneath own domain":  {"x.berth.test", "", "", 200},
		"name with own end":   {"evilberth.test", "", "", 403},
		"localhost":           {"localhost:7070", "", "", 200},
		"IPv6":                {"[::1]:7070", "", "", 200},
		"another origin":      {"localhost", "Origin", "https://evil.example", 403},
		"null origin":         {"localhost", "Origin", "null", 403},
		"own origin":          {"localhost:7070", "Origin", "http://localhost:7070", 200},
		"cross-site fetch":    {"localhost", "Sec-Fetch-Site", "cross-site", 403},
		"typed into a window": {"localhost", "Sec-Fetch-Site", "none", 200},
	} {
		t.Run(name, func(t *testing.T) {
			v := &visitor{t, v.s, http.DefaultClient}
			r := v.s.Request(t, "GET", "/v1/status", "")
			r.Host = c.host
			if c.header != "" {
				r.Header.Set(c.header, c.value)
			}
			h, _ := v.send(r, c.status)
			if h.Get("Access-Control-Allow-Origin") != "" {
				t.Error("another origin is allowed in")
			}
		})
	}
}

// faults is an engine that breaks in a way that no client may see.
type faults struct {
	api.Engine
	panics bool
}

func (f faults) Status(context.Context) (sandbox.Status, error) {
	if f.panics {
		panic("the secret is hunter2")
	}
	return sandbox.Status{}, &sandbox.Error{Op: "status", Kind: sandbox.Internal,
		Err: sandbox.Errorf("read record", sandbox.Internal, "the secret is hunter2")}
}

func TestInternalFaults(t *testing.T) {
	for _, panics := range []bool{true, false} {
		var log served.Log
		a := api.New(api.Config{Engine: faults{panics: panics}, AdminKey: served.Key, Logger: log.Logger()})
		r := httptest.NewRequest("GET", "/v1/status", nil)
		r.Header.Set("Authorization", "Bearer "+served.Key)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		e := into[wire.Error](t, w.Body.Bytes()).Error
		if w.Code != 500 || e.Code != sandbox.Internal || strings.Contains(w.Body.String(), "hunter2") {
			t.Errorf("answer %d %s", w.Code, w.Body)
		}
		if !panics && !strings.HasPrefix(e.Message, "status: read record: ") {
			t.Errorf("message %q", e.Message)
		}
		if !strings.Contains(log.String(), "hunter2") || !strings.Contains(log.String(), e.RequestID) {
			t.Errorf("the log does not tell: %s", &log)
		}
		if panics && !strings.Contains(log.String(), "guard.go") {
			t.Error("the log has no stack")
		}
	}
}
