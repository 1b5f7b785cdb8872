package guest

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// sessionOf opens a session with a given shell, on a scratch folder.
func sessionOf(t *testing.T, program string) (*Guest, *session) {
	t.Helper()
	dir := t.TempDir()
	g := New(Config{Scratch: dir})
	files, err := openTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	kids, stop := newChildren(false)
	g.files, g.procs = files, newTable(kids, 1<<20)
	g.shells = newSessions(g)
	t.Cleanup(func() { g.shells.close(); g.procs.close(); stop(); files.close() })
	s, err := g.shells.make(&guestv1.OpenSessionRequest{Name: "s", Env: [][]byte{[]byte("GIVEN=yes")}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range dialects {
		if dialects[i].program == program {
			s.dialect = &dialects[i]
		}
	}
	if s.plan, err = g.plan(&guestv1.StartRequest{Argv: [][]byte{[]byte(program)}, Env: [][]byte{[]byte("GIVEN=yes")}}); err != nil {
		t.Fatal(err)
	}
	g.shells.byName["s"] = s
	go s.serve()
	return g, s
}

// outcome runs a command of a session to its end.
func outcome(t *testing.T, g *Guest, s *session, r *guestv1.RunInSessionRequest) (string, string, *guestv1.Exit) {
	t.Helper()
	p, c, err := g.procs.begin(&plan{}, &guestv1.StartRequest{}, 0, func(p *process) error { return s.enqueue(r, p) })
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	<-p.done
	var out [streams]bytes.Buffer
	for {
		e := c.next()
		if e.GetExit() != nil {
			return out[stdout].String(), out[stderr].String(), e.GetExit()
		}
		out[streamIndex(e.GetOutput().Stream)].Write(e.GetOutput().Data)
	}
}

// TestPlainShell: without bash a session remembers its folder, its variables and
// its options, and no command wedges it.
func TestPlainShell(t *testing.T) {
	g, s := sessionOf(t, "sh")
	run := func(line string) (string, string, *guestv1.Exit) {
		return outcome(t, g, s, &guestv1.RunInSessionRequest{Shell: []byte(line), TimeoutMs: 60_000})
	}
	if out, _, _ := run("mkdir 'a b'; cd 'a b'; export KEPT='x y'; OWN=z; echo $GIVEN"); out != "yes\n" {
		t.Errorf("given: %q", out)
	}
	for _, line := range []string{"false", "exit 3", "(exit 4)", "exec true", "exec /nonexistent", "if then fi (", "echo 'open", "echo \"open", "echo $(echo", "{ echo",
		"cat <<END\nbody", " ", "# none", "echo \\", "read x; cat", "sleep 1000 &", "set -e; false", "set +e", "set -u; echo $none", "set +u", "echo ${none?gone}",
		"exec 1>&- 2>&-; echo lost", "kill -9 $$", "kill $$", "trap : EXIT; exit 9", "readonly KEPT", "set -x; true", "set +x", "set -C", "set +C",
		"for i in 3 4 5 6 7 8 9; do eval \"exec $i>&-\"; done", "return 5", "cd /nonexistent", "unset nothing", "printf '\\377\\000'", "IFS=0123", "unset IFS"} {
		run(line)
		out, errs, e := run(`pwd; echo "$KEPT" "$OWN"`)
		if !strings.HasSuffix(out, "/a b\nx y z\n") || e.Code != 0 {
			t.Errorf("after %q: %q, %q, %v", line, out, errs, e)
		}
	}
	out, errs, e := run("echo out; echo err >&2; exit 3")
	if out != "out\n" || errs != "err\n" || e.Code != 3 || e.Restarted == "" {
		t.Errorf("streams: %q %q %v", out, errs, e)
	}
	if _, _, e := outcome(t, g, s, &guestv1.RunInSessionRequest{Shell: []byte("sleep 1000; echo never"), TimeoutMs: 100}); !e.TimedOut {
		t.Errorf("timed out: %v", e)
	}
	if out, _, _ := run(`echo "$OWN"`); out != "z\n" {
		t.Errorf("after a timeout: %q", out)
	}
}

// TestPoisonedState: what a session remembers may break the next shell; then it
// is forgotten, and the session says so.
func TestPoisonedState(t *testing.T) {
	g, s := sessionOf(t, "bash")
	run := func(line string) (string, string, *guestv1.Exit) {
		return outcome(t, g, s, &guestv1.RunInSessionRequest{Shell: []byte(line), TimeoutMs: 60_000})
	}
	for _, line := range []string{"builtin() { exit 7; }", "A=1; readonly __berth_m", "readonly __berth_s __berth_t", "eval() { exit 1; }; builtin() { :; }"} {
		run("cd /; " + line)
		run("exit 1")
		out, errs, e := run("echo alive")
		for range 3 { // at the latest
			if out == "alive\n" {
				break
			}
			out, errs, e = run("echo alive")
		}
		if out != "alive\n" || e.Code != 0 {
			t.Errorf("after %q: %q, %q, %v", line, out, errs, e)
		}
	}
}

// TestLateOutput: what a command leaves running writes to that command's log,
// and to no other's.
func TestLateOutput(t *testing.T) {
	g, s := sessionOf(t, "bash")
	gate := filepath.Join(g.config.Scratch, "gate")
	first := &guestv1.RunInSessionRequest{Shell: []byte("(until [ -e '" + gate + "' ]; do sleep 0.01; done; echo LATE) & echo first")}
	p, c, err := g.procs.begin(&plan{}, &guestv1.StartRequest{}, 0, func(p *process) error { return s.enqueue(first, p) })
	if err != nil {
		t.Fatal(err)
	}
	c.close()
	<-p.done
	out, errs, _ := outcome(t, g, s, &guestv1.RunInSessionRequest{Shell: []byte("touch '" + gate + "'; wait; echo second")})
	if out != "second\n" || errs != "" {
		t.Errorf("the second command: %q %q", out, errs)
	}
	found, err := waitLine(t.Context(), p, &guestv1.WaitLineRequest{Text: []byte("LATE")})
	for err != nil && codeOf(err) == conflict && t.Context().Err() == nil { // the exit is there before the line
		time.Sleep(10 * time.Millisecond)
		found, err = waitLine(t.Context(), p, &guestv1.WaitLineRequest{Text: []byte("LATE")})
	}
	if err != nil || string(found.Line) != "LATE" {
		t.Errorf("the first command's log: %v %v", found, err)
	}
}

// TestClosedSession: nothing is left of a session, not even what lost shells
// left running.
func TestClosedSession(t *testing.T) {
	g, s := sessionOf(t, "bash")
	pids := filepath.Join(g.config.Scratch, "pids")
	for _, line := range []string{"sleep 1000 & echo $! >>" + pids + "; exit 1", "setsid sleep 1000 & echo $! >>" + pids, "sleep 1000 & echo $! >>" + pids} {
		outcome(t, g, s, &guestv1.RunInSessionRequest{Shell: []byte(line)})
	}
	s.close()
	b, err := os.ReadFile(pids)
	if err != nil || strings.Count(string(b), "\n") != 3 {
		t.Fatalf("pids %q %v", b, err)
	}
	for _, pid := range strings.Fields(string(b)) {
		if p, ok := readStat("/proc/" + pid + "/stat"); ok && !p.dead {
			t.Errorf("process %s lives", pid)
		}
	}
	if _, err := os.Stat(s.dir); !os.IsNotExist(err) {
		t.Errorf("the folder: %v", err)
	}
}

func FuzzReport(f *testing.F) {
	f.Add([]byte("ready 0 hB /tmp/a b"))
	f.Add([]byte("0123456789abcdef 255  /"))
	f.Add([]byte(" 256 x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := parseReport(b)
		if ok && (r.status < 0 || r.status > 255 || len(r.cwd) > maxPath || !bytes.HasSuffix(b, []byte(r.cwd))) {
			t.Errorf("%q is %+v", b, r)
		}
	})
}

func FuzzAge(f *testing.F) {
	f.Add([]byte("123.45 0.00\n"))
	f.Add([]byte("9"))
	f.Add([]byte("-1.-5"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := parseAge(b); n < 0 {
			t.Errorf("%q is %d", b, n)
		}
	})
	if parseAge([]byte("123.45 7\n")) != 12345 || parseAge([]byte("7.5")) != 750 {
		f.Error("wrong age")
	}
}

// FuzzLines: however the bytes are cut, the line that is found is the first one
// that matches.
func FuzzLines(f *testing.F) {
	f.Add([]byte("one\ntwo\r\nthree"), uint8(3), "two")
	f.Add([]byte("\n\n\xff\x00\n"), uint8(1), "\xff")
	f.Add(bytes.Repeat([]byte("x"), 3*maxLine), uint8(200), "y")
	f.Fuzz(func(t *testing.T, data []byte, cut uint8, text string) {
		if len(text) == 0 || len(text) > 64 || strings.Contains(text, "\n") {
			return
		}
		s, err := newLineSearch(&guestv1.WaitLineRequest{Regexp: regexp.QuoteMeta(strings.ToValidUTF8(text, "?"))})
		if err != nil {
			t.Fatal(err)
		}
		var found *guestv1.WaitLineResponse
		step := int(cut) + 1
		for at := 0; at < len(data) && found == nil; at += step {
			found = s.add(stdout, int64(at), data[at:min(at+step, len(data))])
		}
		if found == nil {
			found = s.end()
		}
		want := wanted(data, strings.ToValidUTF8(text, "?"))
		if (found == nil) != (want < 0) || found != nil && found.Offset != int64(want) {
			t.Errorf("found %v, want a line at %d", found, want)
		}
	})
}

// wanted is the offset of the first line, or part of a long one, that holds text.
func wanted(data []byte, text string) int {
	at := 0
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		for start := 0; start == 0 || start < len(line); start += maxLine {
			part := line[start:min(start+maxLine, len(line))]
			if len(part) > 0 && bytes.Contains(bytes.TrimSuffix(part, []byte("\r")), []byte(text)) {
				return at + start
			}
		}
		at += len(line) + 1
	}
	return -1
}
