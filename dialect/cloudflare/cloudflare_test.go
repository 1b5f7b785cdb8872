package cloudflare_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/dialect/cloudflare"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/served"
)

// patience bounds every wait of these tests.
const patience = 2 * time.Minute

// box is a sandbox on the fake driver, and its server.
type box struct {
	*served.Server
	engine cloudflare.Engine
	server *cloudflare.Server
	id     string
	url    string
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{Server: served.Start(t)}
	ctx := sandbox.WithCaller(t.Context(), sandbox.Operator())
	one, err := b.Engine.Create(ctx, sandbox.CreateRequest{Template: "base"})
	if err != nil {
		t.Fatal(err)
	}
	b.id, b.engine = string(one.ID), b.Engine
	b.begin(t)
	return b
}

// begin starts a server for the sandbox.
func (b *box) begin(t *testing.T) {
	t.Helper()
	b.server = cloudflare.New(cloudflare.Config{Engine: b.engine, Logger: b.Log.Logger()})
	h := b.server.Sandbox(b.id)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(sandbox.WithCaller(r.Context(), sandbox.Operator())))
	}))
	b.url = front.URL
	server := b.server
	t.Cleanup(func() {
		server.Close()
		front.Close()
	})
}

type object = map[string]any

// call makes a request and returns its answer.
func (b *box) call(t *testing.T, method, path string, body any) (int, object) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, b.url+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var v object
	if err := json.NewDecoder(answer.Body).Decode(&v); err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer.StatusCode, v
}

// must is call that fails the test unless it succeeds.
func (b *box) must(t *testing.T, method, path string, body any) object {
	t.Helper()
	status, v := b.call(t, method, path, body)
	if status != http.StatusOK {
		t.Fatalf("%s %s %v: %d %v", method, path, body, status, v)
	}
	return v
}

// fails is call that fails the test unless it is refused in a way.
func (b *box) fails(t *testing.T, path string, body any, status int, code string) object {
	t.Helper()
	got, v := b.call(t, "POST", path, body)
	if got != status || v["code"] != code || v["httpStatus"] != float64(status) || v["message"] == "" || v["timestamp"] == "" {
		t.Fatalf("%s %v: %d %v, want %d %s", path, body, got, v, status, code)
	}
	return v
}

// exec runs a command in a session.
func (b *box) exec(t *testing.T, session, command string) object {
	t.Helper()
	return b.must(t, "POST", "/api/execute", object{"command": command, "sessionId": session})
}

// events reads a stream of events until take is done with it, or it ends.
func (b *box) events(t *testing.T, method, path string, body any, take func(object) bool) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, b.url+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); answer.StatusCode != http.StatusOK || kind != "text/event-stream" {
		all, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s: %d %s %s", path, answer.StatusCode, kind, all)
	}
	for lines := bufio.NewReader(answer.Body); ; {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var e object
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			t.Fatal(err)
		}
		if take(e) {
			return
		}
	}
}

func TestUtilities(t *testing.T) {
	b := newBox(t)
	if v := b.must(t, "GET", "/api/ping", nil); v["status"] != "healthy" {
		t.Errorf("%v", v)
	}
	if v := b.must(t, "GET", "/api/version", nil); v["version"] != "0.12.10" {
		t.Errorf("%v", v)
	}
	if v := b.must(t, "GET", "/api/commands", nil); v["availableCommands"] == nil {
		t.Errorf("%v", v)
	}
	answer, err := http.Get(b.url + "/")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%v %v", answer, err)
	}
	answer.Body.Close()
	if status, v := b.call(t, "GET", "/api/nothing", nil); status != http.StatusNotFound || v["code"] != "UNKNOWN_ERROR" {
		t.Errorf("%d %v", status, v)
	}
}

func TestExecute(t *testing.T) {
	b := newBox(t)
	v := b.exec(t, "a", "echo out; echo err >&2; (exit 3)")
	if v["stdout"] != "out" || v["stderr"] != "err" || v["exitCode"] != 3.0 || v["success"] != false || v["sessionId"] != "a" {
		t.Errorf("%v", v)
	}
	b.exec(t, "a", "mkdir -p sub && cd sub && export X=1 && y=2 && f() { echo f$1; }")
	if v := b.exec(t, "a", "echo $X$y; f 3; basename $PWD"); v["stdout"] != "12\nf3\nsub" {
		t.Errorf("a session remembers: %v", v)
	}
	if v := b.exec(t, "b", "echo $X$y"); v["stdout"] != "" {
		t.Errorf("sessions share: %v", v)
	}
	v = b.must(t, "POST", "/api/execute", object{"command": "echo $X $Y; Z=9; cd /", "sessionId": "a", "env": object{"X": "it's", "Y": "y", "N": nil}})
	if v["stdout"] != "it's y" {
		t.Errorf("%v", v)
	}
	if v := b.exec(t, "a", "echo $X ${Y-none} $Z; pwd"); v["stdout"] != "1 none 9\n/" {
		t.Errorf("what one call brought stays: %v", v)
	}
	v = b.must(t, "POST", "/api/execute", object{"command": "echo ${X-none}; exit 5", "sessionId": "__DISABLE_SESSION__", "env": object{"Y": "y"}})
	if v["stdout"] != "none" || v["exitCode"] != 5.0 {
		t.Errorf("without a session: %v", v)
	}
	v = b.must(t, "POST", "/api/execute", object{"command": "sleep 600", "sessionId": "__DISABLE_SESSION__", "timeoutMs": 200})
	if v["exitCode"] != 124.0 {
		t.Errorf("time is up: %v", v)
	}
	b.fails(t, "/api/execute", object{"command": "  "}, 400, "INVALID_COMMAND")
	b.fails(t, "/api/execute", object{"command": "true", "sessionId": "a", "env": object{"A B": "1"}}, 400, "VALIDATION_FAILED")
	b.fails(t, "/api/execute", object{"command": "true", "sessionId": "a", "timeoutMs": -1}, 400, "VALIDATION_FAILED")
	b.fails(t, "/api/execute", "text", 400, "VALIDATION_FAILED")
}

func TestSessionEnds(t *testing.T) {
	b := newBox(t)
	b.exec(t, "s", "X=1")
	v := b.fails(t, "/api/execute", object{"command": "echo a; exit 7", "sessionId": "s"}, 410, "SESSION_TERMINATED")
	if c := v["context"].(object); c["sessionId"] != "s" || c["exitCode"] != 7.0 {
		t.Errorf("%v", c)
	}
	if v := b.exec(t, "s", "echo ${X-fresh}"); v["stdout"] != "fresh" {
		t.Errorf("the next call: %v", v)
	}
	b.exec(t, "s", "X=2")
	b.fails(t, "/api/execute", object{"command": "sleep 600", "sessionId": "s", "timeoutMs": 300}, 500, "COMMAND_EXECUTION_ERROR")
	b.fails(t, "/api/execute", object{"command": "Y=kept; sleep 600", "sessionId": "s", "timeoutMs": 300, "env": object{"X": "9", "Z": "9"}, "cwd": "/"}, 500, "COMMAND_EXECUTION_ERROR")
	if v := b.exec(t, "s", "echo $X ${Z-none} $Y ${PWD##*/}"); v["stdout"] != "2 none kept workspace" {
		t.Errorf("after a timeout: %v", v)
	}
}

// TestSessionTime has a session whose commands have a time, unless they say another;
// a server that has not made it knows too.
func TestSessionTime(t *testing.T) {
	b := newBox(t)
	b.must(t, "POST", "/api/session/create", object{"id": "s", "commandTimeoutMs": 400})
	b.must(t, "POST", "/api/session/create", object{"id": "free"})
	slow := func(session string, more object) {
		t.Helper()
		q := object{"command": "sleep 600", "sessionId": session}
		maps.Copy(q, more)
		if v := b.fails(t, "/api/execute", q, 500, "COMMAND_EXECUTION_ERROR"); !strings.Contains(v["message"].(string), "timeout") {
			t.Error(v)
		}
	}
	slow("s", nil)
	slow("free", object{"timeoutMs": 300})
	if v := b.must(t, "POST", "/api/execute", object{"command": "sleep 1; echo done", "sessionId": "s", "timeoutMs": 60_000}); v["stdout"] != "done" {
		t.Error(v)
	}
	if v := b.exec(t, "free", "sleep 1; echo done"); v["stdout"] != "done" {
		t.Error(v)
	}
	b.begin(t)
	slow("s", nil)
	if v := b.exec(t, "free", "sleep 1; echo done; env | grep berth_cf || true"); v["stdout"] != "done" {
		t.Error(v)
	}
	b.must(t, "POST", "/api/session/delete", object{"sessionId": "s"})
	if v := b.exec(t, "s", "sleep 1; echo done"); v["stdout"] != "done" {
		t.Errorf("a session made anew: %v", v)
	}
	b.fails(t, "/api/session/create", object{"id": "bad", "commandTimeoutMs": -1}, 400, "VALIDATION_FAILED")
}

// pythonless has templates that say they are without Python.
type pythonless struct{ cloudflare.Engine }

func (e pythonless) Template(ctx context.Context, name string) (sandbox.Template, error) {
	t, err := e.Engine.Template(ctx, name)
	t.Env = map[string]string{"PYTHON_POOL_MIN_SIZE": "0"}
	return t, err
}

func TestNoPython(t *testing.T) {
	b := newBox(t)
	b.engine = pythonless{b.engine}
	b.begin(t)
	for path, body := range map[string]object{"/api/contexts": {"language": "python"}, "/api/execute/code": {"code": "1"}} {
		if v := b.fails(t, path, body, 501, "PYTHON_NOT_AVAILABLE"); !strings.Contains(v["message"].(string), "Python interpreter not available") {
			t.Error(v)
		}
	}
}

func TestSessions(t *testing.T) {
	b := newBox(t)
	long := "sandbox-" + strings.Repeat("x", 63)
	for _, id := range []string{"one", long, "with space/ä"} {
		if v := b.must(t, "POST", "/api/session/create", object{"id": id, "env": object{"A": "b c"}}); v["id"] != id {
			t.Errorf("%v", v)
		}
		v := b.fails(t, "/api/session/create", object{"id": id}, 409, "SESSION_ALREADY_EXISTS")
		if _, ok := v["context"].(object)["containerPlacementId"]; !ok {
			t.Errorf("%v", v)
		}
		if v := b.exec(t, id, "echo $A"); v["stdout"] != "b c" {
			t.Errorf("%v", v)
		}
	}
	all := b.must(t, "GET", "/api/session/list", nil)["data"].([]any)
	if len(all) != 3 {
		t.Errorf("%v", all)
	}
	for _, id := range all {
		b.must(t, "POST", "/api/session/delete", object{"sessionId": id})
	}
	b.fails(t, "/api/session/delete", object{"sessionId": "one"}, 500, "INTERNAL_ERROR")
	b.fails(t, "/api/session/create", object{"id": ""}, 400, "VALIDATION_FAILED")
}

func TestExecuteStream(t *testing.T) {
	b := newBox(t)
	b.exec(t, "s", "X=seen; f() { echo $X; }; shopt -s extglob; cd /")
	var types []string
	var out, errs string
	b.events(t, "POST", "/api/execute/stream", object{"command": "f; echo ä; echo e >&2; pwd; X=changed; exit 4", "sessionId": "s"}, func(e object) bool {
		types = append(types, e["type"].(string))
		switch e["type"] {
		case "stdout":
			out += e["data"].(string)
		case "stderr":
			errs += e["data"].(string)
		case "complete":
			if e["exitCode"] != 4.0 {
				t.Errorf("%v", e)
			}
		}
		return false
	})
	if out != "seen\nä\n/\n" || errs != "e\n" || types[0] != "start" || types[len(types)-1] != "complete" {
		t.Errorf("%v %q %q", types, out, errs)
	}
	if v := b.exec(t, "s", "echo $X"); v["stdout"] != "seen" {
		t.Errorf("a stream changed its session: %v", v)
	}
	b.fails(t, "/api/execute/stream", object{"command": "", "sessionId": "s"}, 400, "INVALID_COMMAND")
}

func TestProcesses(t *testing.T) {
	b := newBox(t)
	b.exec(t, "s", "X=kept")
	v := b.must(t, "POST", "/api/process/start", object{"command": "echo $X $Y; echo e >&2; sleep 600", "sessionId": "s", "processId": "my proc", "env": object{"Y": "z"}})
	if v["processId"] != "my proc" || v["pid"] == 0.0 {
		t.Fatalf("%v", v)
	}
	quick := b.must(t, "POST", "/api/process/start", object{"command": "exit 3", "sessionId": "s"})["processId"].(string)
	if !strings.HasPrefix(quick, "proc_") {
		t.Error(quick)
	}
	exit := 0.0
	b.events(t, "GET", "/api/process/"+quick+"/stream", nil, func(e object) bool {
		if e["type"] == "exit" {
			exit = e["exitCode"].(float64)
		}
		return false
	})
	if exit != 3 {
		t.Error(exit)
	}
	said := ""
	b.events(t, "GET", "/api/process/my%20proc/stream", nil, func(e object) bool {
		if data, ok := e["data"].(string); ok {
			said += data
		}
		return strings.Contains(said, "kept z\n") && strings.Contains(said, "e\n")
	})
	logs := b.must(t, "GET", "/api/process/my%20proc/logs", nil)
	if logs["stdout"] != "kept z\n" || logs["stderr"] != "e\n" {
		t.Errorf("%v", logs)
	}
	all := b.must(t, "GET", "/api/process/list", nil)["processes"].([]any)
	status := map[string]any{}
	for _, p := range all {
		status[p.(object)["id"].(string)] = p.(object)["status"]
	}
	if len(all) != 2 || status["my proc"] != "running" || status[quick] != "failed" {
		t.Errorf("%v", all)
	}
	b.must(t, "DELETE", "/api/process/my%20proc", nil)
	if p := b.must(t, "GET", "/api/process/my%20proc", nil)["process"].(object); p["status"] != "killed" || p["command"] != "echo $X $Y; echo e >&2; sleep 600" {
		t.Errorf("%v", p)
	}
	if status, v := b.call(t, "GET", "/api/process/none", nil); status != 404 || v["code"] != "PROCESS_NOT_FOUND" {
		t.Errorf("%d %v", status, v)
	}
	b.must(t, "POST", "/api/process/start", object{"command": "trap '' TERM; while :; do sleep 0.1; done", "sessionId": "s"})
	b.must(t, "POST", "/api/process/start", object{"command": "sleep 600", "sessionId": "__DISABLE_SESSION__"})
	if v := b.must(t, "DELETE", "/api/process/kill-all", nil); v["cleanedCount"] != 2.0 {
		t.Errorf("%v", v)
	}
}

// TestNoWorkspace works in images that have no workspace.
func TestNoWorkspace(t *testing.T) {
	b := newBox(t)
	b.must(t, "POST", "/api/execute", object{"command": "mkdir -p $HOME/../../root; rmdir $OLDPWD $PWD; true", "sessionId": "first"})
	if v := b.exec(t, "second", "basename $PWD"); v["stdout"] != "root" {
		t.Errorf("%v", v)
	}
	if v := b.exec(t, "__DISABLE_SESSION__", "basename $PWD"); v["stdout"] != "root" {
		t.Errorf("%v", v)
	}
}
