package cloudflare_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/dialect/cloudflare"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/served"
)

// line is a WebSocket of a test.
type line struct {
	*testing.T
	*websocket.Conn
	ctx context.Context
}

func (b *box) dial(t *testing.T, path string) *line {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	c, _, err := websocket.Dial(ctx, b.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(64 << 20)
	t.Cleanup(func() { c.CloseNow() })
	return &line{t, c, ctx}
}

func (l *line) send(v any) {
	l.Helper()
	b, err := json.Marshal(v)
	if text, ok := v.(string); ok {
		b, err = []byte(text), nil
	}
	if err == nil {
		err = l.Write(l.ctx, websocket.MessageText, b)
	}
	if err != nil {
		l.Fatal(err)
	}
}

// next is the next message, as JSON.
func (l *line) next() (v any) {
	l.Helper()
	_, b, err := l.Read(l.ctx)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		l.Fatal(err)
	}
	return v
}

func TestSocket(t *testing.T) {
	b := newBox(t)
	for _, path := range []string{"/ws", "/api/ws"} {
		l := b.dial(t, path)
		l.send(object{"type": "request", "id": "1", "method": "POST", "path": "/api/execute", "body": object{"command": "echo hi", "sessionId": "s"}})
		m := l.next().(object)
		if m["type"] != "response" || m["id"] != "1" || m["status"] != 200.0 || m["done"] != true || m["body"].(object)["stdout"] != "hi" {
			t.Fatalf("%v", m)
		}
		l.send(object{"type": "request", "id": "2", "method": "POST", "path": "/api/read", "body": object{"path": "/none", "sessionId": "s"}})
		if m := l.next().(object); m["status"] != 404.0 || m["body"].(object)["code"] != "FILE_NOT_FOUND" {
			t.Fatalf("%v", m)
		}
		l.send(object{"type": "request", "id": "3", "method": "POST", "path": "/api/execute/stream", "body": object{"command": "echo a; echo b >&2", "sessionId": "s"}})
		var types []string
		for {
			m := l.next().(object)
			if m["type"] == "response" {
				break
			}
			var e object
			if err := json.Unmarshal([]byte(m["data"].(string)), &e); err != nil || m["id"] != "3" {
				t.Fatalf("%v %v", m, err)
			}
			types = append(types, e["type"].(string))
		}
		if got := strings.Join(types, " "); got != "start stdout stderr complete" && got != "start stderr stdout complete" {
			t.Error(got)
		}
	}
}

// TestSocketCancel ends a stream, and leaves the WebSocket for others.
func TestSocketCancel(t *testing.T) {
	b := newBox(t)
	l := b.dial(t, "/ws")
	l.send(object{"type": "request", "id": "endless", "method": "POST", "path": "/api/execute/stream", "body": object{"command": "echo begun; sleep 600", "sessionId": "s"}})
	for {
		if m := l.next().(object); strings.Contains(fmt.Sprint(m["data"]), "begun") {
			break
		}
	}
	l.send(object{"type": "cancel", "id": "endless"})
	for {
		if m := l.next().(object); m["type"] == "response" {
			break
		}
	}
	for end := time.Now().Add(patience); b.lives(t); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the command lives on")
		}
	}
	l.send(object{"type": "request", "id": "x", "method": "GET", "path": "/api/ping"})
	if m := l.next().(object); m["status"] != 200.0 {
		t.Errorf("%v", m)
	}
}

// lives reports whether a process runs that is no command of a session.
func (b *box) lives(t *testing.T) bool {
	t.Helper()
	all, err := b.Engine.Processes(sandbox.WithCaller(t.Context(), sandbox.Operator()), b.id)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(p sandbox.Process) bool { return p.Exit == nil && p.Session == "" })
}

// TestSocketRefusals sends what cannot be served; the WebSocket stays.
func TestSocketRefusals(t *testing.T) {
	b := newBox(t)
	l := b.dial(t, "/ws")
	for _, m := range []any{"no JSON", "[]", object{"type": "run"}, object{"type": "request", "path": "/api/ping"},
		object{"type": "request", "id": "1", "path": "http://other/api/ping"}, object{"type": "request", "id": "1", "path": "/ws"},
		object{"type": "request", "id": "1", "path": "api"}, object{"type": "request", "id": strings.Repeat("x", 300), "path": "/api/ping"}} {
		l.send(m)
		if e := l.next().(object); e["type"] != "error" || e["code"] != "VALIDATION_FAILED" || e["status"] != 400.0 {
			t.Errorf("%v: %v", m, e)
		}
	}
	l.send(object{"type": "request", "id": "1", "method": "GE T", "path": "/api/ping"})
	if e := l.next().(object); e["type"] != "error" {
		t.Errorf("%v", e)
	}
}

func TestRPC(t *testing.T) {
	b := newBox(t)
	l := b.dial(t, "/rpc")
	call := func(n int, path string, args ...any) any {
		args = append([]any{}, args...)
		l.send([]any{"push", []any{"pipeline", 0, strings.Split(path, "."), args}})
		l.send([]any{"pull", n})
		got := l.next().([]any)
		if got[1] != float64(n) {
			t.Fatalf("%v", got)
		}
		l.send([]any{"release", n, 1})
		return got[2]
	}
	if v := call(1, "utils.ping"); v != "healthy" {
		t.Errorf("%v", v)
	}
	if v := call(2, "commands.execute", "echo $A", "s", object{"env": object{"A": "b"}, "timeoutMs": []any{"undefined"}}).(object); v["stdout"] != "b" {
		t.Errorf("%v", v)
	}
	v := call(3, "files.readFile", "/none", "s").([]any)
	if e := v[4].(object); v[0] != "error" || e["code"] != "FILE_NOT_FOUND" || e["details"].(object)["path"] != "/none" {
		t.Errorf("%v", v)
	}
	if v := call(4, "commands.execute", 1, "s").([]any); v[4].(object)["code"] != "VALIDATION_FAILED" {
		t.Errorf("%v", v)
	}
	if v := call(5, "tunnels.runQuickTunnel", "a", 1).([]any); v[0] != "error" {
		t.Errorf("%v", v)
	}
	l.send(`["push",["pipeline",0,["commands","executeStream"],["echo x","s"]]]`)
	l.send(`["pull",6]`)
	kinds := []string{"pipe", "resolve", "stream"}
	for i, want := range kinds {
		m := l.next().([]any)
		if m[0] != want {
			t.Fatalf("message %d is %v, want %s", i, m, want)
		}
	}
	l.send(`nonsense`)
	for {
		_, _, err := l.Read(l.ctx)
		if websocket.CloseStatus(err) == websocket.StatusPolicyViolation {
			break
		}
		if err != nil {
			t.Fatalf("it ended with %v", err)
		}
	}
}

func TestTerminal(t *testing.T) {
	b := newBox(t)
	b.exec(t, "s", "export SEEN=yes")
	l := b.dial(t, "/ws/pty?sessionId=s&cols=90&rows=20")
	until := func(want string) {
		t.Helper()
		for all := ""; !strings.Contains(all, want); {
			_, part, err := l.Read(l.ctx)
			if err != nil {
				t.Fatalf("%v after %q", err, all)
			}
			all += string(part)
		}
	}
	until(`{"type":"ready"}`)
	if err := l.Write(l.ctx, websocket.MessageBinary, []byte("echo [$SEEN] $(stty size)\r")); err != nil {
		t.Fatal(err)
	}
	until("[yes] 20 90")
	l.send(object{"type": "resize", "cols": 0, "rows": 9999})
	until(`"type":"error"`)
	l.send(object{"type": "unknown"})
	if err := l.Write(l.ctx, websocket.MessageBinary, []byte("exit 5\r")); err != nil {
		t.Fatal(err)
	}
	until(`{"type":"exit","code":5}`)
	for path, want := range map[string]int{"/ws/pty": 400, "/ws/pty?sessionId=a&cols=x": 400, "/ws/pty?sessionId=a&cols=99999": 400, "/ws/pty?sessionId=a": 426, "/rpc": 426, "/ws": 426} {
		if status, v := b.call(t, "GET", path, nil); status != want {
			t.Errorf("%s: %d %v", path, status, v)
		}
	}
}

// TestClose ends what would not end by itself.
func TestClose(t *testing.T) {
	b := newBox(t)
	l := b.dial(t, "/rpc")
	b.server.Close()
	for {
		if _, _, err := l.Read(l.ctx); err != nil {
			break
		}
	}
	if status, v := b.call(t, "POST", "/api/watch", object{"path": "/"}); status != http.StatusServiceUnavailable || v["code"] != "CONTAINER_UNAVAILABLE" {
		t.Errorf("%d %v", status, v)
	}
}

// TestKeys lets in who shows a key, by the header or the query.
func TestKeys(t *testing.T) {
	b := newBox(t)
	s := cloudflare.New(cloudflare.Config{Engine: b.Engine, Logger: b.Log.Logger(), Enter: func(ctx context.Context, digits string) (context.Context, func(), error) {
		if digits != strings.TrimPrefix(served.Key, "berth_") {
			return nil, nil, sandbox.Errorf("check key", sandbox.Unauthorized, "the key is not known")
		}
		return sandbox.WithCaller(ctx, sandbox.Operator()), func() {}, nil
	}})
	b.server = s
	front := serve(t, s)
	for path, want := range map[string]int{
		"/cloudflare/sandboxes/" + b.id + "/api/ping":                             401,
		"/cloudflare/sandboxes/" + b.id + "/api/ping?token=x":                     401,
		"/cloudflare/sandboxes/" + b.id + "/api/ping?token=" + served.Key:         200,
		"/cloudflare/sandboxes/" + b.id + "?token=" + served.Key:                  200,
		"/cloudflare/sandboxes/z0000000000000000000/api/ping?token=" + served.Key: 404,
		"/cloudflare/sandboxes/none/api/ping?token=" + served.Key:                 404,
	} {
		answer, err := http.Get(front + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, answer.StatusCode, want)
		}
	}
}
