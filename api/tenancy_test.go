package api_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// sample is what a route needs so that only the id can be wrong: a query, a body,
// the protocol of a WebSocket.
type sample struct{ query, body, socket string }

// samples has those of the routes that need something.
var samples = map[string]sample{
	"PATCH box": {body: `{"tags":["t"]}`}, "POST box/keepalive": {body: `{"seconds":1}`}, "POST box/fork": {body: `{"count":1}`},
	"POST box/rollback": {body: `{"snapshot":"s"}`}, "POST box/backups": {body: `{"path":"/x"}`}, "POST box/restore-backup": {body: `{"backup":"b"}`},
	"POST box/code": {body: `{"code":"1"}`},
	"POST box/exec": {body: `{"shell":"true"}`}, "POST box/processes": {body: `{"shell":"true"}`},
	"POST box/processes/{process}/signal": {body: `{"signal":"TERM"}`}, "POST box/sessions": {body: `{"name":"s"}`},
	"GET box/processes/{process}/wait":     {},
	"POST box/sessions/{session}/run":      {body: `{"shell":"true"}`},
	"POST box/terminals/{terminal}/resize": {body: `{"cols":80,"rows":24}`}, "POST box/terminals/{terminal}/signal": {body: `{"signal":"INT"}`},
	"GET box/files": {query: "path=/x"}, "HEAD box/files": {query: "path=/x"}, "PUT box/files": {query: "path=/x", body: "x"},
	"DELETE box/files": {query: "path=/x"}, "GET box/files/stat": {query: "path=/x"}, "GET box/files/list": {query: "path=/x"},
	"POST box/files/mkdir": {body: `{"path":"/x"}`}, "POST box/files/move": {body: `{"from":"/x","to":"/y"}`},
	"POST box/files/change": {body: `{"path":"/x","mode":420}`}, "POST box/files/copy": {body: `{"from":"/x","to":"/y"}`},
	"POST box/files/link": {body: `{"path":"/x","target":"/y"}`}, "GET box/files/hash": {query: "path=/x"},
	"GET box/files/attributes": {query: "path=/x"}, "POST box/files/attributes": {body: `{"path":"/x","set":{"user.a":"Yg=="}}`},
	"GET box/files/archive": {query: "path=/x"}, "PUT box/files/archive": {query: "path=/x"},
	"POST box/files/sign": {body: `{"path":"/x","method":"read"}`}, "GET box/watch": {query: "path=/x"},
	"PUT box/policy": {body: `{"profile":"open"}`}, "POST box/terminals": {body: `{}`},
	"GET box/ports/{port}/tunnel": {socket: "berth.tunnel.v1"},
}

// strangers asks as one account for what another has.
type strangers struct {
	*visitor
	key string // of the account that asks
}

var requestID = regexp.MustCompile(`req_[a-z0-9]+`)

// ask returns the status and the body of an answer, without what differs from
// request to request and with every given id made the same.
func (s *strangers) ask(method, path, body string, ids ...string) (int, string) {
	s.t.Helper()
	r := s.s.Request(s.t, method, path, body)
	r.Header.Set("Authorization", "Bearer "+s.key)
	if _, protocol, ok := strings.Cut(path, "#"); ok {
		for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
			"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol": protocol} {
			r.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		s.t.Fatal(err)
	}
	text := requestID.ReplaceAllString(string(b), "req")
	for _, id := range ids {
		text = strings.ReplaceAll(text, id, "ID")
	}
	return resp.StatusCode, text
}

// tenant makes an account and returns a key of it.
func (v *visitor) tenant(id string, scopes ...sandbox.Scope) string {
	v.t.Helper()
	if !strings.Contains(string(v.do("GET", "/v1/accounts", "", 200)), `"id":"`+id+`"`) {
		v.do("POST", "/v1/accounts", `{"id":"`+id+`"}`, 201)
	}
	body, err := json.Marshal(sandbox.KeyRequest{Scopes: scopes})
	if err != nil {
		v.t.Fatal(err)
	}
	r := v.s.Request(v.t, "POST", "/v1/keys", string(body))
	r.Header.Set("Berth-Account", id)
	_, b := v.send(r, 201)
	return into[sandbox.NewKey](v.t, b).Secret
}

// fill gives the variables of a route's path values.
func fill(path, id string) string {
	path = strings.Replace(path, "{id}", id, 1)
	for name, value := range map[string]string{"process": "p1", "terminal": "t1", "session": "s", "port": "8080"} {
		path = strings.Replace(path, "{"+name+"}", value, 1)
	}
	return regexp.MustCompile(`\{[a-z]+\}`).ReplaceAllString(path, "1")
}

// TestAnothersSandboxIsAnUnknownOne asks, on every route that is given a sandbox,
// for one of another account and for one that never was: the answers are equal.
func TestAnothersSandboxIsAnUnknownOne(t *testing.T) {
	v := visit(t)
	owner := &strangers{v, v.tenant("a")}
	other := &strangers{v, v.tenant("b")}
	status, made := owner.ask("POST", "/v1/sandboxes", `{"name":"mine"}`)
	if status != 201 {
		t.Fatalf("%d %s", status, made)
	}
	box := string(into[sandbox.Sandbox](t, []byte(made)).ID)
	unknown := string(sandbox.NewID())
	asked := 0
	for route, need := range v.s.API.Needs() {
		if !strings.HasPrefix(route[1], "/v1/sandboxes/{id}") || need == "open" {
			continue
		}
		asked++
		with := samples[route[0]+" box"+strings.TrimPrefix(route[1], "/v1/sandboxes/{id}")]
		url := func(id string) string {
			if with.socket != "" {
				return fill(route[1], id) + "#" + with.socket
			}
			return fill(route[1], id) + "?" + with.query
		}
		wantStatus, want := other.ask(route[0], url(unknown), with.body, unknown)
		if wantStatus != http.StatusNotFound {
			t.Errorf("%s %s of an unknown sandbox: %d %s: list in samples what the route takes", route[0], route[1], wantStatus, want)
			continue
		}
		if status, got := other.ask(route[0], url(box), with.body, box); status != wantStatus || got != want {
			t.Errorf("%s %s of another's sandbox: %d %s, of an unknown one %d %s", route[0], route[1], status, got, wantStatus, want)
		}
		wantStatus, want = other.ask(route[0], url("nowhere"), with.body, "nowhere")
		if status, got := other.ask(route[0], url("mine"), with.body, "mine"); status != wantStatus || got != want {
			t.Errorf("%s %s by another's name: %d %s, by an unknown one %d %s", route[0], route[1], status, got, wantStatus, want)
		}
	}
	if asked < 40 {
		t.Errorf("%d routes were asked", asked)
	}
	if status, got := owner.ask("GET", "/v1/sandboxes/"+box, ""); status != 200 || !strings.Contains(got, `"running"`) {
		t.Errorf("afterwards it is %d %s", status, got)
	}
}

// TestListsShowOnesOwn holds what another has against everything that is listed.
func TestListsShowOnesOwn(t *testing.T) {
	v := visit(t)
	owner := &strangers{v, v.tenant("aaaa")}
	other := &strangers{v, v.tenant("b")}
	_, made := owner.ask("POST", "/v1/sandboxes", `{"name":"mine"}`)
	_, hook := owner.ask("POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/hook-of-a"}`)
	_, key := owner.ask("POST", "/v1/keys", `{"label":"key-of-a"}`)
	for method, ask := range map[string][2]string{
		"PUT":  {"/v1/secrets/secret-of-a", `{"value":"v"}`},
		"POST": {"/v1/domains", `{"name":"of-a.example.org","sandbox":"mine","port":80}`},
	} {
		if status, got := owner.ask(method, ask[0], ask[1]); status/100 != 2 {
			t.Fatalf("%s %s: %d %s", method, ask[0], status, got)
		}
	}
	secrets := []string{string(into[sandbox.Sandbox](t, []byte(made)).ID), into[sandbox.NewWebhook](t, []byte(hook)).ID,
		into[sandbox.NewKey](t, []byte(key)).ID, "mine", "hook-of-a", "key-of-a", "aaaa", "secret-of-a", "of-a.example.org"}
	for route, need := range v.s.API.Needs() {
		if route[0] != "GET" || strings.Contains(route[1], "{") || need == "open" {
			continue
		}
		_, got := other.ask("GET", route[1], "")
		for _, s := range secrets {
			if strings.Contains(got, s) {
				t.Errorf("GET %s tells another account %q: %s", route[1], s, got)
			}
		}
	}
	for what, id := range map[string]string{"/v1/webhooks/": secrets[1], "/v1/keys/": secrets[2], "/v1/secrets/": "secret-of-a", "/v1/domains/": "of-a.example.org"} {
		for _, method := range []string{"GET", "DELETE"} {
			unknown := strings.Repeat("x", len(id)-5) + id[len(id)-5:]
			wantStatus, want := other.ask(method, what+unknown, "", unknown)
			if status, got := other.ask(method, what+id, "", id); status != wantStatus || got != want {
				t.Errorf("%s %s: %d %s, of an unknown one %d %s", method, what, status, got, wantStatus, want)
			}
		}
	}
	if _, got := owner.ask("GET", "/v1/webhooks", ""); !strings.Contains(got, "hook-of-a") {
		t.Errorf("the owner has %s", got)
	}
}

// TestScopes holds every route to what it states: a key with less is refused
// before anything else, one with enough is not.
func TestScopes(t *testing.T) {
	v := visit(t)
	keys := map[string]string{"": "berth_" + strings.Repeat("0", 40)}
	for _, s := range sandbox.Scopes() {
		keys[string(s)] = v.tenant("a", s)
	}
	level := map[string]int{"": 0, "read": 1, "exec": 2, "admin": 3, "operator": 4}
	for route, need := range v.s.API.Needs() {
		if need == "" {
			t.Errorf("%s %s states no scope", route[0], route[1])
		}
		if need == "open" || need == "" || route[1] == "/v1/keys" || route[1] == "/v1/webhooks" || route[1] == "/v1/events" {
			continue // these would make something, or stream; TestKeysOfEachScope looks at them
		}
		path := fill(route[1], string(sandbox.NewID()))
		for scope, key := range keys {
			who := &strangers{v, key}
			status, got := who.ask(route[0], path, "{")
			want := map[bool]int{true: 401, false: 403}[scope == ""]
			if refused := status == 401 || status == 403; refused != (level[scope] < level[need]) || refused && status != want {
				t.Errorf("%s %s needs %s, with %q it is %d %s", route[0], route[1], need, scope, status, got)
			}
		}
	}
}

func TestKeysOfEachScope(t *testing.T) {
	v := visit(t)
	for scope, want := range map[sandbox.Scope][3]int{"read": {403, 403, 200}, "exec": {403, 403, 200}, "admin": {201, 201, 200}} {
		who := &strangers{v, v.tenant("a", scope)}
		for i, ask := range []struct{ method, path, body string }{
			{"POST", "/v1/keys", ""}, {"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/"}`}, {"GET", "/v1/events", ""}} {
			if status, got := who.ask(ask.method, ask.path, ask.body); status != want[i] {
				t.Errorf("%s: %s %s is %d %s, want %d", scope, ask.method, ask.path, status, got, want[i])
			}
		}
	}
	// To open a port to everybody takes more than to open it with a token.
	share := "/v1/sandboxes/" + string(sandbox.NewID()) + "/ports/80/share"
	for scope, want := range map[sandbox.Scope][2]int{"exec": {404, 403}, "admin": {404, 404}} {
		who := &strangers{v, v.tenant("a", scope)}
		for i, body := range []string{"{}", `{"public":true}`} {
			if status, got := who.ask("POST", share, body); status != want[i] {
				t.Errorf("%s shares with %s: %d %s, want %d", scope, body, status, got, want[i])
			}
		}
	}
	r := v.s.Request(t, "GET", "/v1/status", "")
	r.Header.Set("Authorization", "Bearer "+v.tenant("a"))
	r.Header.Set("Berth-Account", "b") // only the operator is believed
	v.send(r, 403)
	r = v.s.Request(t, "GET", "/v1/status", "")
	r.Header.Set("Berth-Account", "nobody")
	v.send(r, 404)
	r = v.s.Request(t, "GET", "/v1/accounts", "")
	r.Header.Set("Berth-Account", "a") // as one of a, and no more
	v.send(r, 403)
}

// TestRemovedKeyCutsAStream removes a key while its owner follows the events.
func TestRemovedKeyCutsAStream(t *testing.T) {
	v := visit(t)
	key := v.tenant("a")
	r := v.s.Request(t, "GET", "/v1/events", "")
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Accept", "application/x-ndjson")
	resp, err := http.DefaultClient.Do(r)
	if err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	defer resp.Body.Close()
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, resp.Body); ended <- err }()
	list := v.s.Request(t, "GET", "/v1/keys", "")
	list.Header.Set("Berth-Account", "a")
	_, b := v.send(list, 200)
	var all struct{ Keys []sandbox.Key }
	if err := json.NewDecoder(bytes.NewReader(b)).Decode(&all); err != nil || len(all.Keys) != 1 {
		t.Fatal(err, all)
	}
	remove := v.s.Request(t, "DELETE", "/v1/keys/"+all.Keys[0].ID, "")
	remove.Header.Set("Berth-Account", "a")
	v.send(remove, 204)
	if err := <-ended; err == nil {
		t.Error("the stream ended as if all had been told")
	}
	again := v.s.Request(t, "GET", "/v1/status", "")
	again.Header.Set("Authorization", "Bearer "+key)
	v.send(again, 401)
}

// TestRemovedKeyCutsAnUpload removes a key whose owner sends a file, and stops half
// way without letting go.
func TestRemovedKeyCutsAnUpload(t *testing.T) {
	v := visit(t)
	owner := &strangers{v, v.tenant("a")}
	if status, got := owner.ask("POST", "/v1/sandboxes", `{"name":"box"}`); status != 201 {
		t.Fatal(status, got)
	}
	body, feed := io.Pipe()
	defer feed.Close()
	r := v.s.Request(t, "PUT", "/v1/sandboxes/box/files?path=/tmp/x", "")
	r.Header.Set("Authorization", "Bearer "+owner.key)
	r.Body, r.ContentLength = body, -1
	ended := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			defer resp.Body.Close()
			if resp.StatusCode/100 == 2 {
				err = nil
			} else {
				err = io.ErrUnexpectedEOF
			}
		}
		ended <- err
	}()
	if _, err := feed.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	v.do("DELETE", "/v1/accounts/a", "", 204) // which waits for what is under way
	if err := <-ended; err == nil {
		t.Error("half a file was taken")
	}
}
