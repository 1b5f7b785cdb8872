package kernel

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func create(t *testing.T, s *Set, o Options) *Context {
	t.Helper()
	c, err := s.Create(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func run(t *testing.T, s *Set, c *Context, code string) *Run {
	t.Helper()
	r, err := s.Run(c, code, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func expect(t *testing.T, s *Set, c *Context, code string, status Status, want ...string) End {
	t.Helper()
	got, end := read(t, run(t, s, c, code))
	if !slices.Equal(got, want) || end.Status != status {
		t.Errorf("%q: %.300q ends as %d (%s); want %q, %d", code, got, end.Status, end.Reason, want, status)
	}
	return end
}

func TestRun(t *testing.T) {
	s, _, o := newScripted(t)
	c := create(t, s, o)
	end := expect(t, s, c, "print a\nwarn b\nshow c\nvalue 7", OK,
		"out a", "err b", "shown main=false image/png json=false aGk= text/html json=false <b>c</b>",
		`shown main=true application/json json=true {"v":"7"} text/plain json=false 7`)
	if end.Count != 1 {
		t.Errorf("the first run is counted as %d", end.Count)
	}
	expect(t, s, c, "raise no", Failed, "raised ValueError no 2")
	expect(t, s, c, "quiet-raise no", Failed, "raised 1 no 0")
	if end = expect(t, s, c, "", OK); end.Count != 4 {
		t.Errorf("the fourth run is counted as %d", end.Count)
	}
	if i := c.Info(); i.State != Idle || i.Runs != 4 || i.PID != 4711 || i.Restarts != 0 {
		t.Errorf("after four runs: %+v", i)
	}
}

func TestContexts(t *testing.T) {
	s, script, o := newScripted(t)
	script.unstarts = 1
	if _, err := s.Create(t.Context(), o); err == nil || !strings.Contains(err.Error(), "exit code 3") || len(s.List()) != 0 {
		t.Errorf("a kernel that ends at once: %v, %d contexts", err, len(s.List()))
	}
	o.Name = "work"
	c := create(t, s, o)
	if _, err := s.Create(t.Context(), o); !errors.Is(err, ErrTaken) {
		t.Errorf("the name twice: %v", err)
	}
	if d, err := s.Default(o); err != nil || d != c || s.Find(c.ID) != c || s.Find("work") != c || s.Find("") != nil {
		t.Errorf("the context is not found: %v, %v", d, err)
	}
	o.Name = ""
	o.Language = "cobol"
	if _, err := s.Create(t.Context(), o); !errors.Is(err, ErrNoKernel) {
		t.Errorf("a language without kernel: %v", err)
	}
	if all := Languages(o.Folders); !slices.Equal(all, []string{"scripted"}) {
		t.Errorf("languages %q", all)
	}
	s.Remove(c)
	if _, err := s.Run(c, "", nil, 0); !errors.Is(err, ErrNoContext) || s.Find("work") != nil {
		t.Errorf("a run after the end: %v", err)
	}
}

// TestDefaultStarts shows that runs wait for the kernel, and hear why it does not
// start.
func TestDefaultStarts(t *testing.T) {
	s, script, o := newScripted(t)
	o.Name, script.unstarts = "scripted", 1
	c, err := s.Default(o)
	if err != nil {
		t.Fatal(err)
	}
	if end := expect(t, s, c, "print a", Died); !strings.Contains(end.Reason, "exit code 3") {
		t.Errorf("a kernel that does not start: %q", end.Reason)
	}
	expect(t, s, c, "print a", OK, "out a")
}

func TestOneAtATime(t *testing.T) {
	s, _, o := newScripted(t)
	c := create(t, s, o)
	first := run(t, s, c, "print a\nwait")
	second, third := run(t, s, c, "print b"), run(t, s, c, "print c")
	awaitState(t, c, Busy)
	second.Cancel("not wanted")
	if got, end := read(t, second); len(got) != 0 || end.Status != Cancelled || end.Reason != "not wanted" {
		t.Errorf("a run that was cancelled before its turn: %q, %+v", got, end)
	}
	awaitEvent(t, first)
	if !c.Interrupt() {
		t.Error("nothing to interrupt")
	}
	if got, end := read(t, first); end.Status != Interrupted || !slices.Equal(got, []string{"out a", "raised KeyboardInterrupt  2"}) {
		t.Errorf("an interrupted run: %q, %+v", got, end)
	}
	if got, end := read(t, third); end.Status != OK || !slices.Equal(got, []string{"out c"}) {
		t.Errorf("the run after it: %q, %+v", got, end)
	}
	if s.FindRun(first.ID) != first || s.FindRun("r99") != nil {
		t.Error("runs are not found as they should")
	}
	var waiting []*Run
	blocked := run(t, s, c, "wait")
	awaitState(t, c, Busy)
	for {
		r, err := s.Run(c, "", nil, 0)
		if errors.Is(err, ErrFull) {
			break
		}
		if err != nil || len(waiting) > maxQueued {
			t.Fatalf("%d runs wait: %v", len(waiting), err)
		}
		waiting = append(waiting, r)
	}
	if len(waiting) != maxQueued {
		t.Errorf("%d runs can wait", len(waiting))
	}
	blocked.Cancel("")
	c.Interrupt()
	for _, r := range waiting {
		if _, end := read(t, r); end.Status != OK {
			t.Fatalf("a run that waited: %+v", end)
		}
	}
}

// awaitEvent returns once the run has begun to show something.
func awaitEvent(t *testing.T, r *Run) {
	t.Helper()
	c, _ := r.Read(0)
	defer c.Close()
	for late := time.After(time.Minute); ; {
		if _, ok := c.Next(); ok {
			return
		}
		select {
		case <-c.Wake():
		case <-late:
			t.Fatal("the run shows nothing")
		}
	}
}

func awaitState(t *testing.T, c *Context, want State) {
	t.Helper()
	for end := time.Now().Add(time.Minute); c.Info().State != want; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the context is %+v", c.Info())
		}
	}
}

func TestTimeout(t *testing.T) {
	s, script, o := newScripted(t)
	c := create(t, s, o)
	r, err := s.Run(c, "wait", nil, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if got, end := read(t, r); end.Status != TimedOut || len(got) != 1 {
		t.Errorf("a run that heeds the interrupt: %q, %+v", got, end)
	}
	expect(t, s, c, "print a", OK, "out a")
	if c.Info().Restarts != 0 {
		t.Error("the kernel did not outlive it")
	}
	shorten(t, &killAfter)
	if r, err = s.Run(c, "deaf", nil, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if _, end := read(t, r); end.Status != TimedOut || !strings.Contains(end.Reason, "killed") {
		t.Errorf("a run that does not: %+v", end)
	}
	expect(t, s, c, "print a", OK, "out a") // it was told: the next one goes on
	if c.Info().Restarts != 1 || len(script.kernels) != 2 {
		t.Errorf("after the kill: %+v, %d kernels", c.Info(), len(script.kernels))
	}
}

func TestDeath(t *testing.T) {
	s, script, o := newScripted(t)
	c := create(t, s, o)
	if end := expect(t, s, c, "print a\ndie", Died, "out a"); !strings.Contains(end.Reason, "SIGSEGV") {
		t.Errorf("the reason is %q", end.Reason)
	}
	expect(t, s, c, "print b", OK, "out b")
	script.last().end("was killed by SIGKILL")
	awaitState(t, c, Dead)
	if i := c.Info(); !strings.Contains(i.Reason, "SIGKILL") || i.PID != 0 {
		t.Errorf("a context whose kernel died while idle: %+v", i)
	}
	if end := expect(t, s, c, "print c", Died); !strings.Contains(end.Reason, "lost") {
		t.Errorf("the next run is not told: %q", end.Reason)
	}
	expect(t, s, c, "print c", OK, "out c")
}

func TestRestart(t *testing.T) {
	s, script, o := newScripted(t)
	c := create(t, s, o)
	deaf, waits := run(t, s, c, "deaf"), run(t, s, c, "print a")
	awaitState(t, c, Busy)
	if err := c.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, end := read(t, deaf); end.Status != Interrupted || !strings.Contains(end.Reason, "restarted") {
		t.Errorf("the run under way: %+v", end)
	}
	if _, end := read(t, waits); end.Status != Cancelled {
		t.Errorf("the run that waited: %+v", end)
	}
	expect(t, s, c, "print b", OK, "out b")
	if err := c.Restart(t.Context()); err != nil || len(script.kernels) != 3 || c.Info().Restarts != 2 {
		t.Errorf("a second restart: %v, %d kernels, %+v", err, len(script.kernels), c.Info())
	}
	deaf = run(t, s, c, "deaf")
	awaitState(t, c, Busy)
	s.Remove(c)
	if _, end := read(t, deaf); end.Status != Interrupted || !strings.Contains(end.Reason, "removed") {
		t.Errorf("a run of a context that was removed: %+v", end)
	}
	if err := c.Restart(t.Context()); !errors.Is(err, ErrNoContext) {
		t.Errorf("the restart of a context that was removed: %v", err)
	}
}

func TestPrelude(t *testing.T) {
	s, script, o := newScripted(t)
	o.Folders = []string{scriptedSpec(t, "set A=first", "")}
	c := create(t, s, o)
	if end := expect(t, s, c, "env A", OK, "out first"); end.Count != 1 {
		t.Errorf("what runs before the first run is counted: %d", end.Count)
	}
	o.Folders = []string{scriptedSpec(t, "raise no", "")}
	if _, err := s.Create(t.Context(), o); err == nil || !strings.Contains(err.Error(), "prelude") {
		t.Errorf("a kernel that does not take its prelude: %v", err)
	}
	if how := script.last().How(); how == "" {
		t.Error("it lives on")
	}
}

func TestEnvironment(t *testing.T) {
	s, _, o := newScripted(t)
	c := create(t, s, o)
	r, err := s.Run(c, "env A\nenv KEPT", map[string]string{"A": "1", "KEPT": "mine"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, end := read(t, r); end.Status != OK || !slices.Equal(got, []string{"out 1", "out mine"}) || end.Count != 1 {
		t.Errorf("a run with variables: %q, %+v", got, end)
	}
	expect(t, s, c, "env A\nenv KEPT", OK, "out own") // nothing is said of nothing
}

// TestHostile has kernels break every rule. No run hangs, no word of another's is
// taken for a run's, and the context goes on.
func TestHostile(t *testing.T) {
	s, _, o := newScripted(t)
	c := create(t, s, o)
	expect(t, s, c, "stray\nprint a", OK, "missed 1", "missed 1", "out a")
	expect(t, s, c, "huge\nprint a", OK, "missed 1", "out a")
	shorten(t, &straggle)
	expect(t, s, c, "print a\nmute", OK, "out a", "missed 1")
	shorten(t, &unanswered)
	expect(t, s, c, "print a\nunanswered", OK, "out a", "missed 1")
	if end := expect(t, s, c, "print a\nendless", Died, "out a"); !strings.Contains(end.Reason, "connection") {
		t.Errorf("a frame without end: %q", end.Reason)
	}
	expect(t, s, c, "print a", OK, "out a")
}

// TestFlood keeps the newest of what a run prints.
func TestFlood(t *testing.T) {
	s, _, o := newScripted(t)
	c := create(t, s, o)
	r := run(t, s, c, "flood 20\nprint last")
	<-r.Over()
	got, end := read(t, r)
	if end.Status != OK || len(got) < 5 || !strings.HasPrefix(got[0], "missed ") || got[len(got)-1] != "out last" {
		t.Errorf("%d events, from %.20q to %.20q, %+v", len(got), got[0], got[len(got)-1], end)
	}
	if size := r.log.bytes(); size > logBytes {
		t.Errorf("%d bytes are kept", size)
	}
	if _, ok := r.Read(1 << 40); ok {
		t.Error("an event that has not come can be gone on from")
	}
	cursor, ok := r.Read(r.log.next - 2)
	if e, more := cursor.Next(); !ok || !more || e.Kind != Ended {
		t.Errorf("behind the last but one comes %+v", e)
	}
}
