package bridge_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/dialect/cloudflare/bridge"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/served"
)

// rig is a bridge before a server on the fake driver.
type rig struct {
	*served.Server
	t   *testing.T
	url string
	key string
}

func start(t *testing.T) *rig {
	s := served.Start(t)
	inside := func(id string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s of %s", r.URL, id)
		})
	}
	enter := func(ctx context.Context, digits string) (context.Context, func(), error) {
		if "berth_"+digits == served.Key {
			return sandbox.WithCaller(ctx, sandbox.Operator()), func() {}, nil
		}
		return s.Accounts.EnterDigits(ctx, digits)
	}
	b := bridge.New(bridge.Config{Engine: s.Engine, Enter: enter, Inside: inside, Warm: 4, Logger: s.Log.Logger(),
		PortURL: func(id sandbox.ID, port int) string { return fmt.Sprintf("http://%d-%s.berth.test/", port, id) }})
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !b.Claims(r) {
			http.Error(w, "of another door", http.StatusTeapot)
			return
		}
		b.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return &rig{Server: s, t: t, url: h.URL + bridge.Prefix, key: served.Key}
}

// send makes a request, and returns its answer.
func (g *rig) send(method, path, body string, header ...string) (status int, answer string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // no redirects
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode, string(all)
}

// want makes a request and holds its answer against what is wanted.
func (g *rig) want(method, path, body string, status int, answer string, header ...string) {
	g.t.Helper()
	if s, a := g.send(method, path, body, header...); s != status || !strings.Contains(a, answer) {
		g.t.Errorf("%s %s %.60s: %d %s, want %d %s", method, path, body, s, a, status, answer)
	}
}

// create gives a new id.
func (g *rig) create() string {
	g.t.Helper()
	status, answer := g.send("POST", "/v1/sandbox", "")
	var made struct{ ID string }
	if err := json.Unmarshal([]byte(answer), &made); err != nil || status != 200 || len(made.ID) != 26 || strings.Trim(made.ID, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		g.t.Fatalf("create: %d %s", status, answer)
	}
	return made.ID
}

// ran is what a command did.
type ran struct {
	out, err string
	code     int
	fault    string // code of the event error
}

// exec runs a command.
func (g *rig) exec(id, body string, header ...string) ran {
	g.t.Helper()
	status, answer := g.send("POST", "/v1/sandbox/"+id+"/exec", body, header...)
	if status != 200 {
		g.t.Fatalf("exec %s: %d %s", body, status, answer)
	}
	r, err := readEvents(strings.NewReader(answer))
	if err != nil {
		g.t.Fatalf("exec %s: %v in %q", body, err, answer)
	}
	return r
}

func readEvents(in io.Reader) (r ran, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	name, over := "", false
	for lines.Scan() {
		line := lines.Text()
		data, isData := strings.CutPrefix(line, "data: ")
		switch {
		case strings.HasPrefix(line, "event: "):
			name = line[7:]
		case !isData:
		case over:
			return r, errors.New("there is more after the last event")
		case name == "exit":
			over = true
			var e struct {
				Code *int `json:"exit_code"`
			}
			if err = json.Unmarshal([]byte(data), &e); err != nil || e.Code == nil {
				return r, fmt.Errorf("exit %s: %v", data, err)
			}
			r.code = *e.Code
		case name == "error":
			over = true
			var e struct{ Error, Code string }
			if err = json.Unmarshal([]byte(data), &e); err != nil {
				return r, err
			}
			r.fault = e.Code
		default:
			b, err := base64.StdEncoding.DecodeString(data)
			if err != nil {
				return r, err
			}
			if name == "stdout" {
				r.out += string(b)
			} else {
				r.err += string(b)
			}
		}
	}
	if !over {
		err = errors.New("no last event")
	}
	return r, errors.Join(err, lines.Err())
}

func TestCommands(t *testing.T) {
	g := start(t)
	id := g.create()
	for _, one := range []struct {
		body string
		want ran
	}{
		{`{"argv":["echo","hello"]}`, ran{out: "hello\n"}},
		{`{"argv":["sh","-c","echo out; echo err >&2; exit 3"]}`, ran{out: "out\n", err: "err\n", code: 3}},
		{`{"argv":["printf","%s|","a b","$HOME","'","\"","\\","a\nb","ä","","*"]}`, ran{out: "a b|$HOME|'|\"|\\|a\nb|ä||*|"}},
		{`{"argv":["cd","/"],"timeout_ms":30000}`, ran{}},
		{`{"argv":["sleep","60"],"timeout_ms":50}`, ran{code: 124}},
		{`{"argv":["true"],"cwd":"nowhere"}`, ran{fault: "exec_error"}},
		{`{"argv":["sh","-c","basename $PWD"]}`, ran{out: "workspace\n"}},
		{`{"argv":["env","A=b","sh","-c","echo $A"],"cwd":"/workspace/."}`, ran{out: "b\n"}},
	} {
		if got := g.exec(id, one.body); got != one.want {
			t.Errorf("%s: %+v, want %+v", one.body, got, one.want)
		}
	}
	if got := g.exec(id, `{"argv":["no-such-program"]}`); got.code != 127 || got.err == "" {
		t.Errorf("a program that is not there: %+v", got)
	}
	if got := g.exec(id, `{"argv":["head","-c","300000","/dev/zero"]}`); got.out != strings.Repeat("\x00", 300_000) {
		t.Errorf("much output: %d bytes", len(got.out))
	}
	path := "/v1/sandbox/" + id + "/exec"
	g.want("POST", path, "junk", 400, `{"error":"Invalid JSON body","code":"invalid_request"}`)
	g.want("POST", path, "", 400, "invalid_request")
	g.want("POST", path, "{}", 400, `{"error":"argv must be a non-empty array","code":"invalid_request"}`)
	g.want("POST", path, `{"argv":"ls"}`, 400, "argv must not be a string")
	g.want("POST", path, `{"argv":["a",1]}`, 400, "invalid_request")
	g.want("POST", path, `{"argv":["a"],"timeout_ms":-1}`, 400, "invalid_request")
	g.want("POST", path, `{"argv":["a"],"cwd":"/etc"}`, 403, `{"error":"cwd must resolve to a location within /workspace","code":"invalid_request"}`)
	g.want("POST", path, `{"argv":["a"],"cwd":"../etc"}`, 403, "invalid_request")
	g.want("POST", path, `{"argv":["a"]}`, 400, `{"error":"Invalid session ID format","code":"invalid_request"}`, "Session-Id", "a b")
	g.want("POST", path, strings.Repeat(" ", 4<<20+1), 413, "payload_too_large")
	if got := g.exec(id, `{"argv":["a\u0000b"]}`); got.fault != "exec_error" {
		t.Errorf("a NUL: %+v", got)
	}
}

func TestSessions(t *testing.T) {
	g := start(t)
	id := g.create()
	base := "/v1/sandbox/" + id
	g.want("POST", base+"/session", `{"id":"one","env":{"A":"b"}}`, 200, `{"id":"one"}`)
	g.want("POST", base+"/session", `{"id":"one"}`, 502, "session_error")
	g.want("POST", base+"/session", "", 200, `{"id":"session-`)
	g.want("POST", base+"/session", "junk", 400, "invalid_request")
	g.want("POST", base+"/session", `{"env":{"A":1}}`, 400, "invalid_request")
	g.want("POST", base+"/session", `{"id":"a/b"}`, 400, "Invalid session ID format")
	for _, one := range []struct {
		session, body string
		want          ran
	}{
		{"one", `{"argv":["sh","-c","echo $A"]}`, ran{out: "b\n"}},
		{"one", `{"argv":["export","B=c"]}`, ran{}},
		{"one", `{"argv":["sh","-c","echo $B; exit 4"]}`, ran{out: "c\n", code: 4}},
		{"one", `{"argv":["exit","5"]}`, ran{code: 5}},
		{"one", `{"argv":["sh","-c","echo $B"]}`, ran{out: "c\n"}},
		{"one", `{"argv":["sleep","60"],"timeout_ms":50}`, ran{code: 124}},
		{"two", `{"argv":["sh","-c","echo ${A-none}"]}`, ran{out: "none\n"}}, // made on first use
		{strings.Repeat("long", 30), `{"argv":["echo","x"]}`, ran{out: "x\n"}},
		{"-dash", `{"argv":["echo","x"]}`, ran{out: "x\n"}},
	} {
		if got := g.exec(id, one.body, "Session-Id", one.session); got != one.want {
			t.Errorf("%s %s: %+v, want %+v", one.session, one.body, got, one.want)
		}
	}
	g.want("DELETE", base+"/session/one", "", 200, `{"success":true,"sessionId":"one","timestamp":"20`)
	g.want("DELETE", base+"/session/one", "", 502, "session_error")
	g.want("DELETE", base+"/session/a%20b", "", 400, "Invalid session ID format")
}

func TestFiles(t *testing.T) {
	g := start(t)
	base := "/v1/sandbox/" + g.create() + "/file"
	body := "\x00\xff any bytes"
	g.want("PUT", base+"/workspace/a/b%20c", body, 200, `{"ok":true}`)
	if status, got := g.send("GET", base+"/workspace/a/b%20c", ""); status != 200 || got != body {
		t.Errorf("read: %d %q", status, got)
	}
	g.want("PUT", base+"/workspace/empty", "", 200, `{"ok":true}`)
	if status, got := g.send("GET", base+"/workspace/empty", ""); status != 200 || got != "" {
		t.Errorf("read what is empty: %d %q", status, got)
	}
	g.want("GET", base+"/workspace/none", "", 404, "workspace_read_not_found")
	g.want("GET", base+"/workspace", "", 502, "workspace_archive_read_error")
	g.want("PUT", base+"/workspace", "x", 502, "workspace_archive_write_error")
	for _, path := range []string{"/etc/passwd", "/x", "/workspace/../etc/passwd", "/workspace/%2e%2e/etc", "/workspace2/x", "//etc/passwd", "/workspace/a/../../x"} {
		g.want("GET", base+path, "", 403, `{"error":"path must resolve to a location within /workspace","code":"invalid_request"}`)
		g.want("PUT", base+path, "x", 403, "invalid_request")
	}
	g.want("GET", base+"/", "", 400, `{"error":"file path must not be empty","code":"invalid_request"}`)
	g.want("GET", base+"/workspace/a%00b", "", 400, "invalid_request")
	g.want("GET", base+"/workspace/"+strings.Repeat("x/", 3000), "", 400, "invalid_request")
	g.want("GET", base+"/workspace/a", "", 400, "Invalid session ID format", "Session-Id", "a b")
	large := strings.Repeat("x", 32<<20+1)
	g.want("PUT", base+"/workspace/large", large, 413, `{"error":"payload too large: 33554433 bytes exceeds the 33554432-byte limit","code":"payload_too_large"}`)
	g.untold("PUT", base+"/workspace/large", large, 413, "payload_too_large")
	g.want("GET", base+"/workspace/large", "", 404, "workspace_read_not_found")
	g.want("PUT", base+"/workspace/large", large[1:], 200, "ok")
}

// untold is want with a body whose length is not told.
func (g *rig) untold(method, path, body string, status int, answer string) {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), method, g.url+path, io.MultiReader(strings.NewReader(body)))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	if all, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != status || !strings.Contains(string(all), answer) {
		g.t.Errorf("%s %s: %d %s %v, want %d %s", method, path, resp.StatusCode, all, err, status, answer)
	}
}

func TestWorkspace(t *testing.T) {
	g := start(t)
	from, to := "/v1/sandbox/"+g.create(), "/v1/sandbox/"+g.create()
	for _, name := range []string{"keep", "skip", "sub/skip", "sub/deep/x", "star*", "starry"} {
		g.want("PUT", from+"/file/workspace/"+name, "of "+name, 200, "ok")
	}
	status, packed := g.send("POST", from+"/persist?excludes=skip,./sub/deep/,star*", "")
	if status != 200 {
		t.Fatalf("persist: %d %s", status, packed)
	}
	if got, want := namesOf(t, packed), []string{"./", "keep", "starry", "sub/", "sub/skip"}; !slices.Equal(got, want) {
		t.Errorf("the archive holds %q, want %q", got, want)
	}
	g.want("PUT", to+"/file/workspace/stays", "it does", 200, "ok")
	g.want("POST", to+"/hydrate", packed, 200, `{"ok":true}`)
	g.want("GET", to+"/file/workspace/sub/skip", "", 200, "of sub/skip")
	g.want("GET", to+"/file/workspace/stays", "", 200, "it does")
	g.want("POST", from+"/persist?excludes=a,../x", "", 400, `exclude paths must not contain \"..\"`)
	g.want("POST", from+"/persist?excludes="+strings.Repeat("a,", 65), "", 400, "invalid_request")
	g.want("POST", to+"/hydrate", "", 400, `{"error":"Empty tar payload","code":"invalid_request"}`)
	g.want("POST", to+"/hydrate", strings.Repeat("junk", 1000), 502, "workspace_archive_write_error")
	large := strings.Repeat("x", 32<<20+1)
	g.want("POST", to+"/hydrate", large, 400, `{"error":"tar payload too large: 33554433 bytes exceeds the 33554432-byte limit","code":"invalid_request"}`)
}

// TestHostileArchive unpacks what would leave the workspace.
func TestHostileArchive(t *testing.T) {
	g := start(t)
	base := "/v1/sandbox/" + g.create()
	for _, h := range []tar.Header{
		{Name: "../escaped", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "/escaped", Typeflag: tar.TypeReg, Mode: 0o644},
		{Name: "link/escaped", Typeflag: tar.TypeReg, Mode: 0o644},
	} {
		var packed bytes.Buffer
		w := tar.NewWriter(&packed)
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: "link", Typeflag: tar.TypeSymlink, Linkname: "/home"}), w.WriteHeader(&h), w.Close()); err != nil {
			t.Fatal(err)
		}
		g.send("POST", base+"/hydrate", packed.String()) // refused, or kept within
		if got := g.exec(strings.TrimPrefix(base, "/v1/sandbox/"), `{"argv":["sh","-c","ls -d ../escaped ../home/escaped ../../escaped"]}`); got.out != "" {
			t.Errorf("%s: it is at %s", h.Name, got.out)
		}
	}
}

func namesOf(t *testing.T, packed string) (all []string) {
	t.Helper()
	for r := tar.NewReader(strings.NewReader(packed)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(all)
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h.Name)
	}
}

func TestSandboxes(t *testing.T) {
	g := start(t)
	id := g.create()
	if page, err := g.Engine.List(g.asOperator(), sandbox.ListQuery{}); err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("an id alone made %v, %v", page.Sandboxes, err)
	}
	g.want("DELETE", "/v1/sandbox/"+id, "", 204, "")
	g.want("GET", "/v1/sandbox/"+id+"/running", "", 200, `{"running":true}`)
	g.want("GET", "/v1/pool/stats", "", 200, `{"warm":0,"assigned":1,"total":1,"config":{"warmTarget":4,"refreshInterval":10000,"maxInstances":0,"scaleBatchSize":1},"maxInstances":null}`)
	s, err := g.Engine.Get(g.asOperator(), "bridge-"+id)
	if err != nil || s.Idle == nil || s.Idle.Action != sandbox.ActPause {
		t.Fatalf("%+v, %v", s, err)
	}
	if _, err := g.Engine.Pause(g.asOperator(), string(s.ID)); err != nil {
		t.Fatal(err)
	}
	if got := g.exec(id, `{"argv":["echo","awake"]}`); got.out != "awake\n" {
		t.Errorf("after a pause: %+v", got)
	}
	g.want("DELETE", "/v1/sandbox/"+id, "", 204, "")
	if _, err := g.Engine.Get(g.asOperator(), string(s.ID)); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("after delete: %v", err)
	}
	long := strings.Repeat("z", 128)
	g.want("GET", "/v1/sandbox/"+long+"/running", "", 200, `{"running":true}`)
	for _, bad := range []string{"UPPER", "abc1", "a-b", "a.b", long + "z", "%20"} {
		g.want("GET", "/v1/sandbox/"+bad+"/running", "", 400, `{"error":"Invalid sandbox ID format","code":"invalid_request"}`)
		g.want("DELETE", "/v1/sandbox/"+bad, "", 400, "invalid_request")
	}
	g.want("POST", "/v1/pool/prime", "", 200, `{"ok":true}`)
	g.want("POST", "/v1/pool/shutdown-prewarmed", "", 200, `{"ok":true}`)
}

// TestTogether uses an id for the first time in many calls at once.
func TestTogether(t *testing.T) {
	g := start(t)
	id := g.create()
	done := make(chan ran)
	for range 20 {
		go func() {
			_, answer := g.send("POST", "/v1/sandbox/"+id+"/exec", `{"argv":["echo","x"]}`)
			r, _ := readEvents(strings.NewReader(answer))
			done <- r
		}()
	}
	for range 20 {
		if r := <-done; r.out != "x\n" {
			t.Errorf("%+v", r)
		}
	}
	page, err := g.Engine.List(g.asOperator(), sandbox.ListQuery{})
	if err != nil || len(page.Sandboxes) != 1 {
		t.Errorf("%d sandboxes, %v", len(page.Sandboxes), err)
	}
}

func (g *rig) asOperator() context.Context {
	return sandbox.WithCaller(g.t.Context(), sandbox.Operator())
}

func TestDoor(t *testing.T) {
	g := start(t)
	g.want("GET", "/health", "", 200, `{"ok":true}`, "Authorization", "")
	for _, key := range []string{"", "Bearer ", "Bearer x", "Basic " + served.Key, "Bearer berth_" + strings.Repeat("0", 40)} {
		g.want("GET", "/v1/pool/stats", "", 401, `{"error":"Unauthorized","code":"unauthorized"}`, "Authorization", key)
		g.want("GET", "/v1/openapi.json", "", 401, "unauthorized", "Authorization", key)
	}
	g.want("GET", "/v1/openapi.json?token="+served.Key, "", 200, `"openapi": "3.1.0"`, "Authorization", "")
	g.want("GET", "/v1/openapi?token="+served.Key, "", 200, "<!doctype html>", "Authorization", "")
	g.want("GET", "/v1/openapi.html", "", 200, "hydrate")
	g.want("GET", "/v1/pool/stats?token="+served.Key, "", 401, "unauthorized", "Authorization", "")
	g.want("GET", "/v1/pool/stats", "", 200, "warm", "Authorization", "bearer "+served.Key)
	g.want("GET", "/v1/nope", "", 404, "no route")
	g.want("PUT", "/v1/sandbox/abc/exec", "", 404, "no route")
	g.want("GET", "/v2/x", "", http.StatusTeapot, "")
	g.want("GET", "/sandboxes/x", "", http.StatusTeapot, "")
}

// TestScopes uses keys that may not do everything.
func TestScopes(t *testing.T) {
	g := start(t)
	id := g.create()
	g.want("PUT", "/v1/sandbox/"+id+"/file/workspace/x", "text", 200, "ok")
	ctx := g.asOperator()
	keyOf := func(scope sandbox.Scope) string {
		k, err := g.Accounts.CreateKey(ctx, sandbox.KeyRequest{Label: string(scope), Scopes: []sandbox.Scope{scope}})
		if err != nil {
			t.Fatal(err)
		}
		return k.Secret
	}
	other := "aaaaaaaaaaaaaaaaaaaaaaaaaa"
	g.key = keyOf(sandbox.ScopeRead)
	g.want("GET", "/v1/sandbox/"+id+"/file/workspace/x", "", 200, "text")
	g.want("GET", "/v1/sandbox/"+other+"/file/workspace/x", "", 403, "may make none")
	g.want("PUT", "/v1/sandbox/"+id+"/file/workspace/x", "", 403, "invalid_request")
	g.want("POST", "/v1/sandbox/"+id+"/exec", `{"argv":["id"]}`, 403, "invalid_request")
	g.key = keyOf(sandbox.ScopeExec)
	if got := g.exec(id, `{"argv":["echo","x"]}`); got.out != "x\n" {
		t.Errorf("%+v", got)
	}
	g.want("POST", "/v1/sandbox", "", 403, "invalid_request")
	g.want("DELETE", "/v1/sandbox/"+id, "", 403, "invalid_request")
	g.want("GET", "/v1/sandbox/"+other+"/running", "", 403, "may make none")
	g.want("POST", "/v1/sandbox/"+id+"/tunnel/8080", "", 403, "invalid_request")
	g.key = keyOf(sandbox.ScopeAdmin)
	g.want("POST", "/v1/pool/shutdown-prewarmed", "", 403, "operator")
	g.want("DELETE", "/v1/sandbox/"+id, "", 204, "")
}

// TestTenants uses one account's id with another's key.
func TestTenants(t *testing.T) {
	g := start(t)
	id := g.create()
	g.want("PUT", "/v1/sandbox/"+id+"/file/workspace/x", "of the first", 200, "ok")
	a, err := g.Accounts.CreateAccount(g.asOperator(), sandbox.AccountRequest{ID: "second"})
	if err != nil {
		t.Fatal(err)
	}
	as, leave, err := g.Accounts.EnterAs(t.Context(), a.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	k, err := g.Accounts.CreateKey(as, sandbox.KeyRequest{Label: "k", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	if err != nil {
		t.Fatal(err)
	}
	g.key = k.Secret
	g.want("GET", "/v1/sandbox/"+id+"/file/workspace/x", "", 404, "workspace_read_not_found") // its own of that id
	g.want("DELETE", "/v1/sandbox/"+id, "", 204, "")
	g.key = served.Key
	g.want("GET", "/v1/sandbox/"+id+"/file/workspace/x", "", 200, "of the first")
}

func TestTerminalsMountsTunnels(t *testing.T) {
	g := start(t)
	base := "/v1/sandbox/" + g.create()
	up := []string{"Upgrade", "websocket"}
	g.want("GET", base+"/pty", "", 400, `{"error":"WebSocket upgrade required","code":"invalid_request"}`)
	g.want("GET", base+"/pty?cols=abc", "", 400, `{"error":"cols and rows must be valid numbers","code":"invalid_request"}`, up...)
	g.want("GET", base+"/pty?session=a/b", "", 400, "Invalid session ID format", up...)
	g.want("GET", base+"/pty", "", 400, "Invalid session ID format", append(up, "Session-Id", "a b")...)
	g.want("GET", base+"/pty", "", 200, "/ws/pty?cols=80&rows=24&sessionId=sandbox-default of ", up...)
	g.want("GET", base+"/pty?cols=100&rows=30&shell=/bin/sh&session=s1", "", 200, "/ws/pty?cols=100&rows=30&sessionId=s1&shell=%2Fbin%2Fsh of ", up...)

	g.want("POST", base+"/mount", `{}`, 400, "mountPath must be a non-empty string")
	g.want("POST", base+"/mount", `{"bucket":"b","mountPath":"rel","options":{}}`, 400, "mountPath must be an absolute path (start with /)")
	g.want("POST", base+"/mount", `{"bucket":"b","mountPath":"/mnt"}`, 400, "options must be an object")
	g.want("POST", base+"/mount", `{"mountPath":"/mnt","options":{}}`, 400, "bucket")
	g.refusesMounts(base + "/mount")
	g.want("POST", base+"/unmount", `{}`, 400, "mountPath must be a non-empty string")
	g.want("POST", base+"/unmount", `{"mountPath":"/mnt/../.."}`, 400, "filesystem root")
	g.want("POST", base+"/unmount", `{"mountPath":"/no/such/mount"}`, 502, `No active mount found at path: /no/such/mount`)

	for _, port := range []string{"abc", "80", "3000", "0", "-1", "65536"} {
		g.want("POST", base+"/tunnel/"+port, "", 400, `{"error":"Invalid port","code":"invalid_request"}`)
		g.want("DELETE", base+"/tunnel/"+port, "", 400, "invalid_request")
	}
	g.want("POST", base+"/tunnel/8080", `{"name":"x"}`, 502, "tunnel_error")
	g.want("POST", base+"/tunnel/8080", "", 200, `"port":8080,"url":"http://8080-`)
	g.want("POST", base+"/tunnel/8080", "{}", 200, `"hostname":"8080-`)
	if !g.public(base, 8080) {
		t.Error("the port is not open")
	}
	g.want("DELETE", base+"/tunnel/8080", "", 204, "")
	if g.public(base, 8080) {
		t.Error("the port is still open")
	}
}

// refusesMounts asks for what no bucket can be mounted by, and last for one where there is
// no s3fs.
func (g *rig) refusesMounts(path string) {
	g.t.Helper()
	for options, want := range map[string]string{
		`"endpoint":1`: "endpoint", `"endpoint":"https://x","readOnly":"true"`: "readOnly", `"endpoint":"https://x","prefix":1`: "prefix",
		`"endpoint":"https://x","s3fsOptions":"ro"`: "s3fsOptions", `"endpoint":"https://x","s3fsOptions":["ro",1]`: "s3fsOptions",
		`"endpoint":"https://x","credentialProxy":"x"`: "credentialProxy", `"endpoint":"https://x","credentials":{"accessKeyId":"x"}`: "credentials",
	} {
		g.want("POST", path, `{"bucket":"b","mountPath":"/mnt","options":{`+options+`}}`, 400, want)
	}
	g.want("POST", path, `{"bucket":"b","mountPath":"/mnt","options":[]}`, 400, "options")
	g.want("POST", path, `{"mountPath":"/mnt","options":{"endpoint":"https://x"}}`, 400, "bucket")
	g.want("POST", path, `{"binding":"B","mountPath":"/mnt","options":{"endpoint":"https://x"}}`, 400, "not both")
	g.want("POST", path, `{"bucket":"b","mountPath":"/mnt/..","options":{"endpoint":"https://x"}}`, 400, "filesystem root")

	const keys = `"credentials":{"accessKeyId":"id","secretAccessKey":"hush"}`
	for options, want := range map[string]string{
		`"endpoint":"https://x"`: "give options.credentials", `"endpoint":"ftp://x",` + keys: "endpoint", `"endpoint":"https://x,allow_other",` + keys: "endpoint",
		`"endpoint":"https://x","credentialProxy":true,` + keys: "credentialProxy", `"endpoint":"https://x","prefix":"a",` + keys: "prefix",
		`"endpoint":"https://x","s3fsOptions":["passwd_file=/x"],` + keys:                    "s3fsOptions",
		`"endpoint":"https://x","credentials":{"accessKeyId":"id","secretAccessKey":"a\nb"}`: "no key holds",
		`"endpoint":"https://127.0.0.1:1",` + keys:                                           "the sandbox has no s3fs",
	} {
		body := `{"bucket":"b","mountPath":"/mnt/bucket","options":{` + options + `}}`
		g.want("POST", path, body, 502, "mount_error")
		if status, answer := g.send("POST", path, body); !strings.Contains(answer, want) || strings.Contains(answer, "hush") {
			g.t.Errorf("%s: %d %s, want %s", options, status, answer, want)
		}
	}
	g.want("POST", path, `{"binding":"B","mountPath":"/mnt","options":{}}`, 502, "no Worker here")
	g.want("POST", path, `{"bucket":"b:c","mountPath":"/mnt","options":{"endpoint":"https://x",`+keys+`}}`, 502, "options.prefix")
}

// TestS3FS plans mounts.
func TestS3FS(t *testing.T) {
	const keys = `"credentials":{"accessKeyId":"id","secretAccessKey":"hush"}`
	for options, want := range map[string]string{
		`"endpoint":"https://s3.example.com"`:                                                               "b use_path_request_style,url=https://s3.example.com",
		`"endpoint":"https://a.R2.cloudflarestorage.com","readOnly":true,"prefix":"/a/b/"`:                  "b:/a/b nomixupload,ro,url=https://a.R2.cloudflarestorage.com",
		`"endpoint":"https://s3.eu-west-1.amazonaws.com","prefix":"/","s3fsOptions":["a=1,b","c","a=2"]`:    "b b,c,a=2,url=https://s3.eu-west-1.amazonaws.com",
		`"endpoint":"http://10.0.0.1:9000","s3fsOptions":["use_path_request_style","","multipart_size=10"]`: "b use_path_request_style,multipart_size=10,url=http://10.0.0.1:9000",
	} {
		source, given, secrets, err := bridge.PlanMount([]byte(`{"bucket":"b","mountPath":"/mnt/x/","options":{` + options + `,` + keys + `}}`))
		if got := source + " " + given; err != nil || got != want || secrets != "b:id:hush\n" {
			t.Errorf("%s: %q, %q, %v; want %q", options, got, secrets, err, want)
		}
	}
}

// public reports whether a port is open to everybody.
func (g *rig) public(base string, port int) bool {
	g.t.Helper()
	all, err := g.Engine.Ports(g.asOperator(), "bridge-"+strings.TrimPrefix(base, "/v1/sandbox/"))
	if err != nil {
		g.t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(p sandbox.Port) bool { return p.Port == port && p.Public })
}

// TestLeaving goes away while a command runs.
func TestLeaving(t *testing.T) {
	g := start(t)
	id := g.create()
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", g.url+"/v1/sandbox/"+id+"/exec", strings.NewReader(`{"argv":["sh","-c","echo on; sleep 600"]}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+g.key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil { // it streams
		t.Fatal(err)
	}
	leave()
	for {
		all, err := g.Engine.Processes(g.asOperator(), "bridge-"+id)
		if err != nil {
			t.Fatal(err) // at the latest when the test's time is over
		}
		if !slices.ContainsFunc(all, func(p sandbox.Process) bool { return p.Exit == nil }) {
			return
		}
	}
}

// TestDocument holds the document against the routes.
func TestDocument(t *testing.T) {
	g := start(t)
	_, answer := g.send("GET", "/v1/openapi.json", "")
	var d struct {
		Paths map[string]map[string]struct {
			OperationID string
			Responses   map[string]any
		}
	}
	if err := json.Unmarshal([]byte(answer), &d); err != nil {
		t.Fatal(err)
	}
	var told []string
	for path, all := range d.Paths {
		for method, o := range all {
			told = append(told, strings.ToUpper(method)+" "+strings.Replace(path, "/file/{path}", "/file/*", 1))
			if o.OperationID == "" || len(o.Responses) == 0 {
				t.Errorf("%s %s is not described", method, path)
			}
		}
	}
	slices.Sort(told)
	if served := slices.Sorted(maps.Keys(bridge.Routes())); !slices.Equal(told, served) {
		t.Errorf("told %q\nserved %q", told, served)
	}
}
