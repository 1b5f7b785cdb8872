package api_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/api"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
	"github.com/berth-dev/berth/test/served"
)

var _ api.Engine = (*engine.Engine)(nil)

// visitor sends requests and reads answers, each held to the document.
type visitor struct {
	t *testing.T
	s *served.Server
	c *http.Client
}

func visit(t *testing.T) *visitor {
	t.Helper()
	s := served.Start(t)
	return &visitor{t, s, checkedClient(t, s)}
}

// send returns the answer, which must have the status.
func (v *visitor) send(r *http.Request, status int) (http.Header, []byte) {
	v.t.Helper()
	resp, err := v.c.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	if resp.StatusCode != status {
		v.t.Fatalf("%s %s: %s, want %d: %.2000s", r.Method, r.URL, resp.Status, status, b)
	}
	if resp.Header.Get(wire.HeaderRequestID) == "" {
		v.t.Error("no request id")
	}
	return resp.Header, b
}

func (v *visitor) do(method, path, body string, status int) []byte {
	v.t.Helper()
	_, b := v.send(v.s.Request(v.t, method, path, body), status)
	return b
}

func into[T any](t *testing.T, b []byte) (out T) {
	t.Helper()
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatalf("%v in %.500s", err, b)
	}
	return out
}

// create makes a sandbox and returns the path of its routes.
func (v *visitor) create(body string) string {
	v.t.Helper()
	s := into[sandbox.Sandbox](v.t, v.do("POST", "/v1/sandboxes", body, 201))
	return "/v1/sandboxes/" + string(s.ID)
}

func TestSandboxes(t *testing.T) {
	v := visit(t)
	box := v.create("")
	other := v.create(`{"metadata":{"k":"v w"},"limits":{"cpu_milli":500}}`)
	if s := into[sandbox.Sandbox](t, v.do("GET", other, "", 200)); s.Limits.CPUMilli != 500 || s.State != sandbox.Running {
		t.Errorf("got %+v", s)
	}
	p := into[sandbox.Page](t, v.do("GET", "/v1/sandboxes?limit=1", "", 200))
	if len(p.Sandboxes) != 1 || "/v1/sandboxes/"+string(p.Sandboxes[0].ID) != other || p.Next == "" {
		t.Errorf("first page %+v", p)
	}
	p = into[sandbox.Page](t, v.do("GET", "/v1/sandboxes?limit=1&after="+p.Next, "", 200))
	if len(p.Sandboxes) != 1 || "/v1/sandboxes/"+string(p.Sandboxes[0].ID) != box || p.Next != "" {
		t.Errorf("second page %+v", p)
	}
	if p := into[sandbox.Page](t, v.do("GET", "/v1/sandboxes?metadata.k=v+w&state=running&state=failed&template=base", "", 200)); len(p.Sandboxes) != 1 {
		t.Errorf("selected %+v", p)
	}
	st := into[sandbox.Status](t, v.do("GET", "/v1/status", "", 200))
	if st.Sandboxes[sandbox.Running] != 2 || st.Classes[0].Class != "fake" || !st.Classes[0].Usable || st.Classes[0].Isolates {
		t.Errorf("status %+v", st)
	}
	v.do("DELETE", box, "", 204)
	v.do("DELETE", box, "", 404)
	v.do("GET", box, "", 404)
}

func TestExecAsJSON(t *testing.T) {
	v := visit(t)
	box := v.create(`{"env":{"SHARED":"sandbox","OWN":"1"}}`)
	run := func(body string) wire.Output {
		t.Helper()
		return into[wire.Output](t, v.do("POST", box+"/exec", body, 200))
	}
	out := run(`{"shell":"echo $FROM_TEMPLATE $SHARED $OWN $MINE; echo oops >&2; exit 3","env":{"MINE":"2"}}`)
	if out.Stdout != "yes sandbox 1 2\n" || out.Stderr != "oops\n" || out.Exit.Code != 3 || out.Encoding != "utf-8" {
		t.Errorf("got %+v", out)
	}
	if out := run(`{"argv":["printf","\\377"]}`); out.Encoding != "base64" || out.Stdout != "/w==" {
		t.Errorf("binary: %+v", out)
	}
	if out := run(`{"argv":["cat"],"stdin_data":"` + base64.StdEncoding.EncodeToString([]byte("fed")) + `"}`); out.Stdout != "fed" {
		t.Errorf("with input: %+v", out)
	}
	if out := run(`{"argv":["true"],"stdin_data":"` + strings.Repeat("QUFB", 100_000) + `"}`); out.Exit.Code != 0 {
		t.Errorf("input that nobody reads: %+v", out)
	}
	if out := run(`{"argv":["sleep","100"],"timeout_ms":50}`); !out.Exit.TimedOut {
		t.Errorf("timed out: %+v", out)
	}
	if out := run(`{"shell":"head -c 12000000 /dev/zero | tr '\\0' x; echo end >&2"}`); len(out.Stdout) != 10<<20 || !out.StdoutTruncated || out.StderrTruncated {
		t.Errorf("large output: %d bytes, truncated %v and %v", len(out.Stdout), out.StdoutTruncated, out.StderrTruncated)
	}
}

func TestExecAsEvents(t *testing.T) {
	v := visit(t)
	box := v.create("")
	r := v.s.Request(t, "POST", box+"/exec", `{"shell":"printf out; printf err >&2; exit 1"}`)
	r.Header.Set("Accept", "text/event-stream")
	h, b := v.send(r, 200)
	if h.Get("Content-Type") != "text/event-stream" {
		t.Errorf("type %s", h.Get("Content-Type"))
	}
	got := map[string]string{}
	var names []string
	for events := wire.NewSSEReader(bytes.NewReader(b)); ; {
		name, data, err := events.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		got[name] = string(data)
	}
	if names[0] != "started" || names[len(names)-1] != "exit" || got["stdout"] != `{"offset":0,"data":"b3V0"}` ||
		got["stderr"] != `{"offset":0,"data":"ZXJy"}` || got["exit"] != `{"code":1}` {
		t.Errorf("got %v in %v", got, names)
	}
}

func TestProcesses(t *testing.T) {
	v := visit(t)
	box := v.create("")
	r := v.s.Request(t, "POST", box+"/exec", `{"argv":["cat"],"name":"cat","stdin":true,"detach":true}`)
	r.Header.Set("Accept", wire.TypeRaw)
	resp, err := v.c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	frames := wire.NewFrameReader(resp.Body)
	first, err := frames.Recv()
	if err != nil || first.Started == nil {
		t.Fatalf("first event %+v, %v", first, err)
	}
	proc := box + "/processes/" + first.Started.ID
	if all := into[wire.Processes](t, v.do("GET", box+"/processes", "", 200)); len(all.Processes) != 1 {
		t.Errorf("processes %+v", all)
	}
	for _, by := range []string{proc, box + "/processes/cat"} {
		if p := into[sandbox.Process](t, v.do("GET", by, "", 200)); p.ID != first.Started.ID || p.Exit != nil {
			t.Errorf("process %+v", p)
		}
	}
	v.do("POST", proc+"/input", "one ", 204)
	v.do("POST", proc+"/input?close=true", "two", 204)
	if e := into[sandbox.Exit](t, v.do("GET", proc+"/wait", "", 200)); e.Code != 0 {
		t.Errorf("exit %+v", e)
	}
	out := into[wire.Output](t, v.do("GET", proc+"/output?stdout=4", "", 200))
	if out.Stdout != "two" || out.Process.Name != "cat" {
		t.Errorf("attached: %+v", out)
	}
	v.do("POST", proc+"/signal", `{"signal":"TERM"}`, 409)
	v.do("GET", box+"/processes/nope", "", 404)
	v.do("GET", box+"/processes/nope/wait", "", 404)
	v.do("GET", box+"/processes/nope/output", "", 404)
	v.do("POST", box+"/processes/nope/input", "x", 404)
	v.do("POST", box+"/processes/nope/signal", `{"signal":"KILL"}`, 404)
}

func TestFiles(t *testing.T) {
	v := visit(t)
	box := v.create("")
	files := box + "/files"
	fi := into[sandbox.FileInfo](t, v.do("PUT", files+"?path=/a/b%20%C3%A9.txt&parents=true&mode=0600", "0123456789", 200))
	if fi.Size != 10 || fi.Mode != 0o600 || fi.Path != "/a/b é.txt" {
		t.Errorf("written %+v", fi)
	}
	const path = "?path=/a/b%20%C3%A9.txt"
	h, b := v.send(v.s.Request(t, "GET", files+path, ""), 200)
	if string(b) != "0123456789" || into[sandbox.FileInfo](t, []byte(h.Get(wire.HeaderFileInfo))).Path != fi.Path {
		t.Errorf("read %q with %s", b, h.Get(wire.HeaderFileInfo))
	}
	for header, want := range map[string]string{"bytes=2-4": "234", "bytes=7-": "789", "bytes=-3": "789", "bytes=5-99": "56789", "bytes=0-0": "0"} {
		r := v.s.Request(t, "GET", files+path, "")
		r.Header.Set("Range", header)
		if _, b := v.send(r, 206); string(b) != want {
			t.Errorf("%s: %q, want %q", header, b, want)
		}
	}
	r := v.s.Request(t, "GET", files+path, "")
	r.Header.Set("Range", "bytes=10-")
	if h, _ := v.send(r, 416); h.Get("Content-Range") != "bytes */10" {
		t.Errorf("Content-Range %q", h.Get("Content-Range"))
	}
	if h, b := v.send(v.s.Request(t, "HEAD", files+path, ""), 200); h.Get("Content-Length") != "10" || len(b) != 0 {
		t.Errorf("HEAD: %v", h)
	}
	if fi := into[sandbox.FileInfo](t, v.do("GET", files+"/stat"+path, "", 200)); fi.Type != sandbox.TypeFile {
		t.Errorf("stat %+v", fi)
	}
	if fi := into[sandbox.FileInfo](t, v.do("POST", files+"/mkdir", `{"path":"/a/d","mode":448}`, 200)); fi.Mode != 0o700 || fi.Type != sandbox.TypeDir {
		t.Errorf("mkdir %+v", fi)
	}
	list := into[wire.Files](t, v.do("GET", files+"/list?path=/a&limit=1", "", 200))
	if len(list.Entries) != 1 || !list.More {
		t.Errorf("list %+v", list)
	}
	v.do("POST", files+"/move", `{"from":"/a/b é.txt","to":"/a/d/c"}`, 204)
	v.do("DELETE", files+"?path=/a", "", 409)
	v.do("DELETE", files+"?path=/a&recursive=true", "", 204)
	v.do("GET", files+"?path=/a", "", 404)
	v.do("GET", files+"/stat?path=/a", "", 404)
	if list := into[wire.Files](t, v.do("GET", files+"/list?path=/empty", "", 404)); list.More {
		t.Error(list)
	}
}

func TestTemplateRoutes(t *testing.T) {
	v := visit(t)
	tpl := into[sandbox.Template](t, v.do("POST", "/v1/templates", `{"name":"mine","from":"oci:example"}`, 200))
	if tpl.Name != "mine" {
		t.Errorf("built %+v", tpl)
	}
	v.do("GET", "/v1/templates/mine", "", 200)
	if all := into[wire.Templates](t, v.do("GET", "/v1/templates", "", 200)); len(all.Templates) != 2 {
		t.Errorf("listed %+v", all)
	}
	box := v.create(`{"template":"mine"}`)
	v.do("DELETE", "/v1/templates/mine", "", 409)
	v.do("DELETE", box, "", 204)
	v.do("DELETE", "/v1/templates/mine", "", 204)
	v.do("DELETE", "/v1/templates/mine", "", 404)
	v.do("POST", "/v1/templates", `{"name":"mine","from":"oci:broken"}`, 400)
	for from, want := range map[string]string{"oci:good": "done", "oci:broken": "error"} {
		r := v.s.Request(t, "POST", "/v1/templates", `{"name":"other","from":"`+from+`"}`)
		r.Header.Set("Accept", "text/event-stream")
		_, b := v.send(r, 200)
		if !strings.Contains(string(b), "event: progress\ndata: {\"step\":\"download\"") || !strings.Contains(string(b), "event: "+want+"\n") {
			t.Errorf("%s: %s", from, b)
		}
	}
}
