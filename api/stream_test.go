package api_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// raw starts a process and returns its answer in frames, after the first.
func (v *visitor) raw(box, body string) (*http.Response, *wire.FrameReader, sandbox.Process) {
	v.t.Helper()
	r := v.s.Request(v.t, "POST", box+"/exec", body)
	r.Header.Set("Accept", wire.TypeRaw)
	resp, err := v.c.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { resp.Body.Close() })
	frames := wire.NewFrameReader(resp.Body)
	e, err := frames.Recv()
	if err != nil || e.Started == nil {
		v.t.Fatalf("first event %+v, %v", e, err)
	}
	return resp, frames, *e.Started
}

// ended waits until the process has ended.
func (v *visitor) ended(box, process string) {
	v.t.Helper()
	for range 3000 {
		if p := into[sandbox.Process](v.t, v.do("GET", box+"/processes/"+process, "", 200)); p.Exit != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	v.t.Fatal("the process never ends")
}

// TestOutputComesAtOnce: the first line arrives while the process waits.
func TestOutputComesAtOnce(t *testing.T) {
	v := visit(t)
	box := v.create("")
	_, frames, p := v.raw(box, `{"shell":"echo ready; read line; echo got $line","stdin":true}`)
	e, err := frames.Recv()
	if err != nil || string(e.Data) != "ready\n" {
		t.Fatalf("first output %+v, %v", e, err)
	}
	v.do("POST", box+"/processes/"+p.ID+"/input", "it\n", 204)
	e, err = frames.Recv()
	if err != nil || string(e.Data) != "got it\n" || e.Offset != 6 {
		t.Fatalf("second output %+v, %v", e, err)
	}
	if e, err = frames.Recv(); err != nil || e.Exit == nil {
		t.Fatalf("last event %+v, %v", e, err)
	}
	if _, err := frames.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

// TestClientGoes: a process ends with the request that started it, unless it is
// detached.
func TestClientGoes(t *testing.T) {
	v := visit(t)
	box := v.create("")
	resp, _, p := v.raw(box, `{"argv":["sleep","1000"]}`)
	resp.Body.Close()
	v.ended(box, p.ID)

	resp, _, p = v.raw(box, `{"shell":"read line; echo $line","stdin":true,"detach":true}`)
	resp.Body.Close()
	v.do("POST", box+"/processes/"+p.ID+"/input", "alive\n", 204)
	if out := into[wire.Output](t, v.do("GET", box+"/processes/"+p.ID+"/output", "", 200)); out.Stdout != "alive\n" {
		t.Errorf("detached: %+v", out)
	}
}

// TestShutdownEndsStreams: none of them keeps a server from ending.
func TestShutdownEndsStreams(t *testing.T) {
	v := visit(t)
	box := v.create("")
	_, frames, p := v.raw(box, `{"argv":["sleep","1000"],"detach":true,"stdin":true}`)
	statuses := make(chan int, 3)
	send := func(method, path string, body io.Reader) {
		r := v.s.Request(t, method, path, "")
		r.Body = io.NopCloser(body)
		r.ContentLength = -1
		resp, err := v.c.Do(r)
		if err != nil {
			t.Error(err)
			statuses <- 0
			return
		}
		resp.Body.Close()
		statuses <- resp.StatusCode
	}
	silent, mouth := io.Pipe()
	defer mouth.Close()
	go send("GET", box+"/processes/"+p.ID+"/wait", strings.NewReader(""))
	go send("GET", box+"/processes/"+p.ID+"/output", strings.NewReader(""))
	go send("POST", box+"/processes/"+p.ID+"/input", silent)
	if _, err := mouth.Write([]byte("begun")); err != nil {
		t.Fatal(err)
	}
	v.s.API.Close()
	_, err := frames.Recv()
	if sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("the stream ends with %v", err)
	}
	for range 3 {
		if s := <-statuses; s != 503 {
			t.Errorf("status %d, want 503", s)
		}
	}
}

func TestBuildEndsWithItsClient(t *testing.T) {
	v := visit(t)
	r := v.s.Request(t, "POST", "/v1/templates", `{"name":"x","from":"oci:endless"}`)
	r.Header.Set("Accept", wire.TypeSSE)
	resp, err := v.c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if name, _, err := wire.NewSSEReader(resp.Body).Next(); name != wire.EventProgress || err != nil {
		t.Fatalf("first event %q, %v", name, err)
	}
	resp.Body.Close()
	// Engine.Close waits for every build: it returns only if this one has ended.
	if err := v.s.Engine.Close(); err != nil {
		t.Error(err)
	}
}

func TestAcceptHeader(t *testing.T) {
	v := visit(t)
	box := v.create("")
	for accept, want := range map[string]string{
		"*/*": wire.TypeJSON, "text/html, application/*;q=0.5": wire.TypeJSON, "text/event-stream; q=1": wire.TypeSSE,
		wire.TypeRaw + ", application/json": wire.TypeRaw, "text/html": "",
	} {
		r := v.s.Request(t, "POST", box+"/exec", `{"argv":["true"]}`)
		r.Header.Set("Accept", accept)
		status := 200
		if want == "" {
			status, want = 400, wire.TypeJSON
		}
		if h, b := v.send(r, status); h.Get("Content-Type") != want {
			t.Errorf("%s: %s %s", accept, h.Get("Content-Type"), b)
		}
	}
}

// TestUploadThatBreaksOff leaves what was there.
func TestUploadThatBreaksOff(t *testing.T) {
	v := visit(t)
	box := v.create("")
	v.do("PUT", box+"/files?path=/f", "old", 200)
	broken, mouth := io.Pipe()
	r := v.s.Request(t, "PUT", box+"/files?path=/f", "")
	r.Body, r.ContentLength = broken, 1<<20
	go func() {
		mouth.Write(bytes.Repeat([]byte("x"), 1000))
		mouth.CloseWithError(errors.New("the cable is out"))
	}()
	if resp, err := v.c.Do(r); err == nil {
		resp.Body.Close()
		t.Errorf("answered %s", resp.Status)
	}
	if b := v.do("GET", box+"/files?path=/f", "", 200); string(b) != "old" {
		t.Errorf("the file holds %d bytes", len(b))
	}
}
