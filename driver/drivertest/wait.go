package drivertest

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// background starts a command that outlives its stream and returns its id.
func background(t *testing.T, c *guestclient.Client, cmd sandbox.Command) string {
	t.Helper()
	cmd.Detach = true
	ev, err := c.Start(within(t), cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer ev.Close()
	e, err := ev.Recv()
	if err != nil || e.Started == nil {
		t.Fatalf("start: %+v %v", e, err)
	}
	return e.Started.ID
}

// testWaits: one waits for a line, a port or an end, and is told what cannot
// come any more.
func testWaits(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	id := background(t, c, sh("echo zero; echo one two; echo three >&2; printf 'no end'; sleep 1000; :"))
	for _, w := range []struct {
		wait sandbox.LineWait
		want sandbox.Line
	}{
		{sandbox.LineWait{Text: "e t"}, sandbox.Line{Stream: sandbox.Stdout, Offset: 5, Text: "one two"}},
		{sandbox.LineWait{Regexp: "^o.*two$", From: sandbox.Offsets{Stdout: 5}}, sandbox.Line{Stream: sandbox.Stdout, Offset: 5, Text: "one two"}},
		{sandbox.LineWait{Regexp: "^t", Stream: sandbox.Stderr}, sandbox.Line{Stream: sandbox.Stderr, Offset: 0, Text: "three"}},
		{sandbox.LineWait{Text: "no end"}, sandbox.Line{Stream: sandbox.Stdout, Offset: 13, Text: "no end"}},
	} {
		got, err := c.WaitLine(within(t), id, w.wait)
		if want := w.want; err != nil || got.Stream != want.Stream || got.Offset != want.Offset || !strings.HasPrefix(want.Text, got.Text) {
			t.Errorf("%+v: %+v %v", w.wait, got, err)
		}
	}
	_, err := c.WaitLine(within(t), id, sandbox.LineWait{Regexp: "^no end$", Timeout: 50 * time.Millisecond})
	wantKind(t, "a line that does not come", err, sandbox.Timeout)
	_, err = c.WaitLine(within(t), id, sandbox.LineWait{Regexp: "("})
	wantKind(t, "no expression", err, sandbox.Invalid)
	_, err = c.WaitLine(within(t), id, sandbox.LineWait{Text: "x", From: sandbox.Offsets{Stdout: 1 << 40}})
	wantKind(t, "an offset that is not there", err, sandbox.Invalid)
	_, err = c.WaitPort(within(t), id, sandbox.PortWait{Port: 9, Timeout: 50 * time.Millisecond})
	wantKind(t, "a port that does not open", err, sandbox.Timeout)
	if exit, err := c.Forget(within(t), id); err != nil || exit.Signal != "SIGKILL" {
		t.Errorf("forget: %+v %v", exit, err)
	}
	_, err = c.Wait(within(t), id)
	wantKind(t, "what is forgotten", err, sandbox.NotFound)

	id = background(t, c, sh("echo bye; exit 3"))
	_, err = c.WaitLine(within(t), id, sandbox.LineWait{Text: "hello"})
	wantKind(t, "a line of what has ended", err, sandbox.Conflict)
	if !strings.Contains(err.Error(), "exit code 3") {
		t.Errorf("it says %v", err)
	}
	_, err = c.WaitPort(within(t), id, sandbox.PortWait{Port: 9})
	wantKind(t, "a port of what has ended", err, sandbox.Conflict)
	testServer(t, h, c)
	stop(t, m)
}

// testServer: a server is waited for by its port, and by what it answers.
func testServer(t *testing.T, h Harness, c *guestclient.Client) {
	if output(t, c, "command -v python3 || echo none") == "none\n" {
		t.Log("no python3 in the template: no server to wait for")
		return
	}
	id := background(t, c, sandbox.Command{Argv: []string{"python3", "-u", "-c", `
import http.server, time
time.sleep(0.3)
class H(http.server.BaseHTTPRequestHandler):
    n = 0
    def do_GET(self):
        H.n += 1
        self.send_response(503 if H.n < 3 else 204); self.end_headers()
s = http.server.HTTPServer(("127.0.0.1", 0), H)
print("port", s.server_port)
s.serve_forever()`}})
	l, err := c.WaitLine(within(t), id, sandbox.LineWait{Regexp: `^port \d+$`})
	if err != nil {
		t.Fatal(err)
	}
	port := 0
	for _, d := range strings.TrimPrefix(l.Text, "port ") {
		port = port*10 + int(d-'0')
	}
	if a, err := c.WaitPort(within(t), id, sandbox.PortWait{Port: port}); err != nil || !strings.HasPrefix(a.Address, "127.0.0.1:") {
		t.Errorf("port: %+v %v", a, err)
	}
	if a, err := c.WaitPort(within(t), id, sandbox.PortWait{Port: port, Path: "/ready?x=1"}); err != nil || a.Status != 204 {
		t.Errorf("status: %+v %v", a, err)
	}
	_, err = c.WaitPort(within(t), "", sandbox.PortWait{Port: port, Path: "/", Status: 200, Timeout: 200 * time.Millisecond})
	wantKind(t, "another status", err, sandbox.Timeout)
	if _, err := c.Forget(within(t), id); err != nil {
		t.Error(err)
	}
}

// testProcessUsage: what a tree uses is counted, and what one used that ended.
func testProcessUsage(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	spin := "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"
	id := background(t, c, sh(spin+"; echo spun; sleep 1000 & sleep 1000; :"))
	if _, err := c.WaitLine(within(t), id, sandbox.LineWait{Text: "spun"}); err != nil {
		t.Fatal(err)
	}
	usage := func(id string) *sandbox.ProcessUsage {
		all, err := c.Processes(within(t))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if p.ID == id {
				return p.Usage
			}
		}
		return nil
	}
	eventually(t, "three processes have used time and memory", func() bool {
		u := usage(id)
		return u != nil && u.CPUMillis > 0 && u.MemoryBytes > 0 && u.Processes == 3
	})
	r := run(t, c, sh(spin))
	if u := usage(r.process.ID); u == nil || u.CPUMillis <= 0 || u.Processes != 0 {
		t.Errorf("of what has ended: %+v", u)
	}
	stop(t, m)
}
