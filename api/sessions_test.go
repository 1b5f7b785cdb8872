package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

func TestSessions(t *testing.T) {
	v := visit(t)
	box := v.create("")
	s := into[sandbox.Session](t, v.do("POST", box+"/sessions", `{"name":"work","env":{"A":"1"},"cwd":"/tmp"}`, 201))
	if s.Name != "work" || s.Cwd != "/tmp" || s.User == "" || s.Shell == "" {
		t.Errorf("opened %+v", s)
	}
	v.do("POST", box+"/sessions", `{"name":"work"}`, 200)
	run := func(body string) wire.Output {
		t.Helper()
		return into[wire.Output](t, v.do("POST", box+"/sessions/work/run", body, 200))
	}
	if out := run(`{"shell":"echo $A; B=2; echo err >&2; false"}`); out.Stdout != "1\n" || out.Stderr != "err\n" || out.Exit.Code != 1 {
		t.Errorf("first: %+v", out)
	}
	if out := run(`{"shell":"exit 3"}`); out.Exit.Code != 3 || out.Exit.Restarted == "" {
		t.Errorf("exit: %+v", out.Exit)
	}
	if out := run(`{"argv":["cat"],"stdin_data":"ZmVk"}`); out.Stdout != "fed" || out.Process.Session != "work" {
		t.Errorf("with input: %+v", out)
	}
	if out := run(`{"shell":"echo $B"}`); out.Stdout != "2\n" {
		t.Errorf("after a new shell: %+v", out)
	}
	if out := run(`{"shell":"sleep 100","timeout_ms":50}`); !out.Exit.TimedOut {
		t.Errorf("timed out: %+v", out.Exit)
	}
	r := v.s.Request(t, "POST", box+"/sessions/work/run", `{"shell":"echo streamed"}`)
	r.Header.Set("Accept", "text/event-stream")
	if h, b := v.send(r, 200); h.Get("Content-Type") != "text/event-stream" || !strings.Contains(string(b), "event: exit") {
		t.Errorf("stream: %s", b)
	}
	list := into[wire.Sessions](t, v.do("GET", box+"/sessions", "", 200))
	if len(list.Sessions) != 1 || list.Sessions[0].Commands != 6 || list.Sessions[0].Restarts != 2 {
		t.Errorf("list: %+v", list)
	}
	if n := into[wire.Cancelled](t, v.do("POST", box+"/sessions/work/cancel", "", 200)); n.Cancelled != 0 {
		t.Errorf("cancelled %+v", n)
	}
	v.do("POST", box+"/sessions/work/cancel", `{"process":"p999"}`, 404)
	v.do("DELETE", box+"/sessions/work", "", 204)
	v.do("DELETE", box+"/sessions/work", "", 404)
	v.do("POST", box+"/sessions/work/run", `{"shell":"true"}`, 404)
	for _, bad := range []string{`{"name":""}`, `{"name":"a/b"}`, `{"name":".."}`, `{"name":"x","cwd":"tmp"}`, `{"name":"x","cwd":"/tmp","mood":1}`} {
		v.do("POST", box+"/sessions", bad, 400)
	}
	v.do("POST", box+"/sessions", `{"name":"x"}`, 201)
	for _, bad := range []string{`{}`, `{"shell":"a","argv":["b"]}`, `{"shell":"a","env":{"X":"1"}}`, `{"shell":"a","cwd":"/"}`, `{"shell":"a","user":"root"}`, `{"shell":"a","timeout_ms":-1}`} {
		v.do("POST", box+"/sessions/x/run", bad, 400)
	}
	v.do("POST", box+"/sessions/a%2Fb/run", `{"shell":"true"}`, 404)
}

// TestBackground: a process is started, waited for and removed.
func TestBackground(t *testing.T) {
	v := visit(t)
	box := v.create("")
	h, b := v.send(v.s.Request(t, "POST", box+"/processes", `{"shell":"echo one; echo two >&2; sleep 1000","name":"bg"}`), 201)
	p := into[sandbox.Process](t, b)
	proc := box + "/processes/" + p.ID
	if h.Get("Location") != proc || p.Name != "bg" {
		t.Errorf("started %+v at %s", p, h.Get("Location"))
	}
	l := into[sandbox.Line](t, v.do("GET", proc+"/wait?for=line&text=two", "", 200))
	if l.Stream != sandbox.Stderr || !strings.HasPrefix("two", l.Text) && l.Text != "two" {
		t.Errorf("line %+v", l)
	}
	l = into[sandbox.Line](t, v.do("GET", proc+"/wait?for=line&regexp=%5Eo.e%24&stream=stdout", "", 200))
	if l.Text != "one" || l.Offset != 0 {
		t.Errorf("line %+v", l)
	}
	v.do("GET", proc+"/wait?for=line&text=never&timeout_ms=20", "", 504)
	v.do("GET", proc+"/wait?for=exit&timeout_ms=20", "", 504)
	v.do("GET", proc+"/wait?timeout_ms=20", "", 504)
	v.do("GET", proc+"/wait?for=port&port=1&timeout_ms=20", "", 504)
	for _, bad := range []string{"for=rain", "for=line", "for=line&text=a&regexp=b", "for=line&regexp=(", "for=port", "for=port&port=70000",
		"for=port&port=80&path=x", "for=port&port=80&status=200", "for=exit&text=a", "timeout_ms=0", "timeout_ms=x"} {
		v.do("GET", proc+"/wait?"+bad, "", 400)
	}
	port := v.s.HTTP.Listener.Addr().String() // the fake shares the host's network
	port = port[strings.LastIndexByte(port, ':')+1:]
	if a := into[sandbox.PortAnswer](t, v.do("GET", proc+"/wait?for=port&path=/healthz&port="+port, "", 200)); a.Status != http.StatusOK {
		t.Errorf("port: %+v", a)
	}
	if a := into[sandbox.PortAnswer](t, v.do("GET", proc+"/wait?for=port&path=/nonesuch&status=404&port="+port, "", 200)); a.Status != http.StatusNotFound {
		t.Errorf("port: %+v", a)
	}
	all := into[wire.Processes](t, v.do("GET", box+"/processes", "", 200))
	if len(all.Processes) != 1 || all.Processes[0].Usage == nil || all.Processes[0].Usage.Processes == 0 {
		t.Errorf("list: %+v", all)
	}
	if u := into[sandbox.Usage](t, v.do("GET", box+"/usage", "", 200)); u.MemoryBytes <= 0 || u.Processes == 0 {
		t.Errorf("usage: %+v", u)
	}
	if e := into[sandbox.Exit](t, v.do("DELETE", proc, "", 200)); e.Signal != "SIGKILL" {
		t.Errorf("removed: %+v", e)
	}
	v.do("DELETE", proc, "", 404)
	v.do("GET", proc, "", 404)
	v.do("POST", box+"/processes", `{"shell":"cat","stdin_data":"YQ=="}`, 400)
	v.do("POST", box+"/processes", `{"argv":["nonesuch-program"]}`, 404)

	p = into[sandbox.Process](t, v.do("POST", box+"/processes", `{"shell":"exit 3"}`, 201))
	v.do("GET", box+"/processes/"+p.ID+"/wait?for=line&text=x", "", 409)
	if e := into[sandbox.Exit](t, v.do("GET", box+"/processes/"+p.ID+"/wait?for=exit&timeout_ms=60000", "", 200)); e.Code != 3 {
		t.Errorf("exit: %+v", e)
	}
}
