package api_test

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// lines opens a stream and returns a function that reads its next line that says
// something.
func (v *visitor) lines(path, accept, lastID string) (next func() string, end func()) {
	v.t.Helper()
	ctx, cancel := context.WithCancel(v.t.Context())
	r := v.s.Request(v.t, "GET", path, "").WithContext(ctx)
	r.Header.Set("Accept", accept)
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { cancel(); resp.Body.Close() })
	if resp.StatusCode != 200 || accept != "*/*" && resp.Header.Get("Content-Type") != accept {
		v.t.Fatalf("%s, %v", resp.Status, resp.Header)
	}
	s := bufio.NewScanner(resp.Body)
	return func() string {
		v.t.Helper()
		for s.Scan() {
			if l := s.Text(); l != "" && !strings.HasPrefix(l, ":") {
				return l
			}
		}
		v.t.Fatalf("the stream ended: %v", s.Err())
		return ""
	}, cancel
}

func TestWatchStreams(t *testing.T) {
	v := visit(t)
	box := v.create("")
	watch := box + "/watch?recursive=true&window_ms=1&exclude=*.tmp&path=/workspace"
	schema := document(t, v.s).Components.Schemas["WatchEvent"].Value

	next, end := v.lines(watch, "application/x-ndjson", "")
	ready := into[sandbox.WatchEvent](t, []byte(next()))
	if ready.Type != sandbox.WatchReady || ready.Cursor == "" {
		t.Errorf("%+v", ready)
	}
	v.do("PUT", box+"/files?path=/workspace/a.tmp", "x", 200)
	v.do("PUT", box+"/files?path_b64=L3dvcmtzcGFjZS//", "x", 200)
	line := next()
	e := into[sandbox.WatchEvent](t, []byte(line))
	if e.Type != sandbox.WatchCreate || e.Path != "/workspace/\xff" || !strings.Contains(line, "path_b64") {
		t.Errorf("%s", line)
	}
	if err := schema.VisitJSON(into[map[string]any](t, []byte(line))); err != nil {
		t.Error(err)
	}
	end()

	// A browser goes on by its Last-Event-ID.
	v.do("DELETE", box+"/files?path=/workspace/%FF", "", 204)
	next, _ = v.lines(watch, "text/event-stream", e.Cursor)
	want := []string{"event: ready", "id: " + e.Cursor, "data: ", "event: remove", "id: ", `data: {"type":"remove"`}
	for _, w := range want {
		if l := next(); !strings.HasPrefix(l, w) {
			t.Errorf("%q, want %q", l, w)
		}
	}

	v.do("GET", box+"/watch?path=/none", "", 404)
	v.do("GET", box+"/watch?path=/workspace&window_ms=0", "", 400)
	v.do("GET", box+"/watch?path=/workspace&cursor=x", "", 400)
	v.do("GET", box+"/watch?path=/workspace&include=%5B", "", 400)
	r := v.s.Request(t, "GET", box+"/watch?path=/workspace", "")
	r.Header.Set("Accept", "text/html")
	v.send(r, 400)

	// The end of the sandbox ends the stream, and the stream says why.
	next, _ = v.lines(box+"/watch?path=/workspace", "*/*", "")
	next()
	v.do("DELETE", box, "", 204)
	if l := next(); !strings.Contains(l, `"code":"not_found"`) {
		t.Errorf("%s", l)
	}
}
