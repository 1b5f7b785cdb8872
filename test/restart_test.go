package test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/record/bolt"
	"github.com/berth-dev/berth/sandbox"
)

// otherBinary is this program as a later version of it would be.
func otherBinary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "berth")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w -X main.version=later", "-o", path, "../cmd/berth")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build another version: %v\n%s", err, out)
	}
	return path
}

// cpuUsed is what the kernel has counted for a sandbox, in milliseconds.
func cpuUsed(t *testing.T, id string) int64 {
	t.Helper()
	for pattern, parse := range map[string]func(string) (int64, error){
		"/sys/fs/cgroup/cpuacct/berth/*/" + id + "/cpuacct.usage": func(s string) (int64, error) {
			n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
			return n / 1e6, err
		},
		"/sys/fs/cgroup/berth/*/" + id + "/cpu.stat": func(s string) (int64, error) {
			n, err := strconv.ParseInt(strings.Fields(s)[1], 10, 64) // usage_usec comes first
			return n / 1e3, err
		},
	} {
		files, _ := filepath.Glob(pattern)
		if len(files) != 1 {
			continue
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		n, err := parse(string(b))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Fatalf("no cgroup of %s counts its time", id)
	return 0
}

// wantMetered compares the meter with the kernel, which went on counting before
// and after.
func (r *real) wantMetered(t *testing.T, id string, before int64) {
	t.Helper()
	least := before + cpuUsed(t, id)
	report, err := r.Consumption(t.Context(), sandbox.UsageQuery{Sandbox: id})
	if err != nil {
		t.Fatal(err)
	}
	most := before + cpuUsed(t, id)
	if got := report.Total.CPUMillis; got < least-1 || got > most+1 {
		t.Errorf("metered %d ms, the kernel counted %d to %d", got, least, most)
	}
}

// readTo reads a stream up to so many bytes of output.
func readTo(t *testing.T, events sandbox.Events, bytes int) (process, text string) {
	t.Helper()
	for len(text) < bytes {
		e, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.Started != nil {
			process = e.Started.ID
		}
		text += string(e.Data)
	}
	return process, text
}

// terminalShows types a line and waits for a text on the screen.
func (r *real) terminalShows(ctx context.Context, t *testing.T, id, line, want string) {
	t.Helper()
	c, err := r.JoinTerminal(ctx, id, sandbox.DefaultTerminal, sandbox.TerminalAttach{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Input(ctx, []byte(line+"\n")); err != nil {
		t.Fatal(err)
	}
	for seen := ""; !strings.Contains(seen, want); {
		e, err := c.Recv()
		if err != nil {
			t.Fatalf("waiting for %q: %v; seen %q", want, err, seen)
		}
		seen += string(e.Data)
	}
}

// TestUpgrade kills the server and goes on with another binary: a counter, a
// terminal and a stream that was half read live on, and what the sandbox used
// meanwhile is metered to the millisecond.
func TestUpgrade(t *testing.T) {
	r := startReal(t)
	later := otherBinary(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := r.Create(ctx, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := string(s.ID)
	events, err := r.Exec(ctx, id, sandbox.Command{Shell: "i=0; while [ ! -e /tmp/enough ]; do i=$((i+1)); echo $i; sleep 0.05; done; echo $i lines", Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	counter, half := readTo(t, events, 20)
	if _, _, err := r.OpenTerminal(ctx, id, sandbox.TerminalRequest{Argv: []string{"bash", "--norc"}}); err != nil {
		t.Fatal(err)
	}
	r.terminalShows(ctx, t, id, "x=42; echo set-$((x+1))", "set-43")
	if _, err := r.sh(ctx, id, "timeout 1 sh -c 'while :; do :; done' || true"); err != nil {
		t.Fatal(err)
	}
	r.wantMetered(t, id, 0)

	r.kill(t)
	events.Close()
	r.suite.berth = later
	r.again(t)
	st, err := r.Status(ctx)
	if err != nil || st.Version != "later" {
		t.Fatalf("the version is %q, %v", st.Version, err)
	}
	r.wantMetered(t, id, 0)
	rest, err := r.Attach(ctx, id, counter, sandbox.Offsets{Stdout: int64(len(half))})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.sh(ctx, id, "touch /tmp/enough"); err != nil {
		t.Fatal(err)
	}
	end, err := collect(rest)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	n := 0
	for n < strings.Count(half+end, "\n")-1 {
		n++
		fmt.Fprintln(&want, n)
	}
	if fmt.Fprintln(&want, n, "lines"); half+end != want.String() || n < 20 {
		t.Errorf("the halves give %d bytes, want %d in order", len(half+end), want.Len())
	}
	r.terminalShows(ctx, t, id, "echo still-$((x+2))", "still-44")

	// A pause ends the kernel's counter; the next one begins anew.
	before := cpuUsed(t, id)
	if _, err := r.Pause(ctx, id); err != nil {
		t.Fatal(err)
	}
	paused, err := r.Consumption(ctx, sandbox.UsageQuery{Sandbox: id})
	if err != nil || paused.Total.CPUMillis < before {
		t.Fatalf("paused with %d ms, had %d: %v", paused.Total.CPUMillis, before, err)
	}
	if _, err := r.Resume(ctx, id); err != nil {
		t.Fatal(err)
	}
	r.terminalShows(ctx, t, id, "echo again-$((x+3))", "again-45")
	r.wantMetered(t, id, paused.Total.CPUMillis)
}

// TestBudgetIsKept: a loop may use its budget, and hardly more.
func TestBudgetIsKept(t *testing.T) {
	r := startReal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	s, err := r.Create(ctx, sandbox.CreateRequest{Budget: &sandbox.Budget{CPUMillis: 3000}})
	if err != nil {
		t.Fatal(err)
	}
	id := string(s.ID)
	if _, err := r.sh(ctx, id, "while :; do :; done"); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("the loop ended with %v", err)
	}
	for s.State != sandbox.Paused && err == nil { // the stream breaks before the save is done
		s, err = r.Get(ctx, id)
	}
	if err != nil || s.Reason != "its budget of 3000 CPU-ms is used up" {
		t.Errorf("it is %s: %q, %v", s.State, s.Reason, err)
	}
	report, err := r.Consumption(ctx, sandbox.UsageQuery{Sandbox: id})
	if err != nil || report.Total.CPUMillis < 3000 || report.Total.CPUMillis > 4000 {
		t.Errorf("it used %d ms, %v", report.Total.CPUMillis, err)
	}
	r.kill(t)
	r.again(t)
	if _, err := r.sh(ctx, id, "true"); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("a call: %v", err)
	}
	if _, err := r.Update(ctx, id, sandbox.Update{Budget: &sandbox.Budget{}}); err != nil {
		t.Fatal(err)
	}
	if out, err := r.sh(ctx, id, "echo back"); err != nil || out != "back\n" {
		t.Errorf("after it was raised: %q, %v", out, err)
	}
}

// reboot does to a server's sandboxes what the end of their host does: every
// engine is gone, and the host has another name for this time of its life.
func (r *real) reboot(t *testing.T) {
	t.Helper()
	r.kill(t)
	for _, f := range r.engines() {
		pid, err := strconv.Atoi(strings.Split(f, "/")[2])
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
	for len(r.engines()) > 0 {
		time.Sleep(10 * time.Millisecond)
	}
	store, err := bolt.Open(filepath.Join(r.data, "records.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.Commit(t.Context(), record.Txn{Then: []record.Op{{Key: "host/boot", Value: []byte("another life")}}})
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	r.again(t)
}

// TestTheHostIsRestarted: what was put aside works as before; what ran goes on from
// its checkpoint, or has failed with the reason.
func TestTheHostIsRestarted(t *testing.T) {
	r := startReal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	make := func(name string, c *sandbox.Checkpoint) string {
		t.Helper()
		s, err := r.Create(ctx, sandbox.CreateRequest{Name: name, Checkpoint: c})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.sh(ctx, name, "echo "+name+" >/tmp/name; (i=0; while :; do i=$((i+1)); echo $i >/tmp/count; sleep 0.1; done) >/dev/null 2>&1 &"); err != nil {
			t.Fatal(err)
		}
		return string(s.ID)
	}
	make("safe", &sandbox.Checkpoint{EverySeconds: sandbox.MinCheckpoint})
	make("bare", nil)
	make("paused", nil)
	make("stopped", nil)
	if _, err := r.Pause(ctx, "paused"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Stop(ctx, "stopped"); err != nil {
		t.Fatal(err)
	}
	for { // until the checkpoint is there
		all, err := r.Snapshots(ctx, sandbox.SnapshotQuery{})
		if err != nil {
			t.Fatal(err)
		}
		if len(all) > 0 && all[0].Auto {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	r.reboot(t)
	if s, err := r.Get(ctx, "paused"); err != nil || s.State != sandbox.Paused {
		t.Errorf("paused: %+v, %v", s, err)
	}
	for _, name := range []string{"safe", "paused", "stopped"} {
		if out, err := r.sh(ctx, name, "cat /tmp/name"); err != nil || out != name+"\n" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	for _, name := range []string{"safe", "paused"} { // their loops go on
		out, err := r.sh(ctx, name, "a=$(cat /tmp/count); while [ \"$(cat /tmp/count)\" = \"$a\" ]; do sleep 0.1; done; echo counts")
		if err != nil || out != "counts\n" {
			t.Errorf("%s: %q, %v", name, out, err)
		}
	}
	page, err := r.List(ctx, sandbox.ListQuery{States: []sandbox.State{sandbox.Failed}})
	if err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].Reason != "the host was restarted while it ran" {
		t.Errorf("failed: %+v, %v", page.Sandboxes, err)
	}
	changes, err := r.Changes(ctx, sandbox.ChangeQuery{Sandbox: "safe", Types: []sandbox.ChangeType{"paused"}})
	if err != nil || len(changes.Events) != 1 || !strings.Contains(changes.Events[0].Reason, "its checkpoint, ") {
		t.Errorf("told: %+v, %v", changes.Events, err)
	}
}
