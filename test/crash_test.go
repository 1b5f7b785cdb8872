package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// real is a server on real sandboxes with a data directory of its own.
type real struct {
	*instance
	*client.Client
}

func startReal(t *testing.T, flags ...string) *real {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real sandboxes need root; nothing of gVisor is tested by this run")
	}
	s := &suite{driver: "gvisor", berth: binary(t)}
	seed := s.makeSeed(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := rig.LinkTree(filepath.Join(seed, "templates"), filepath.Join(data, "templates")); err != nil {
		t.Fatal(err)
	}
	r := &real{instance: &instance{suite: s, data: data, log: filepath.Join(dir, "server.log")}}
	r.again(t, flags...)
	t.Cleanup(func() {
		if err := r.clear(); err != nil {
			t.Errorf("clear: %v\n%s", err, tail(r.log))
		}
	})
	return r
}

// again starts the server, which must not run. Nothing runs ahead of the creates:
// what is left on the machine is then left over.
func (r *real) again(t *testing.T, flags ...string) {
	t.Helper()
	if err := r.start(append([]string{"--warm", "0"}, flags...)...); err != nil {
		t.Fatal(err)
	}
	r.meet(t)
}

// meet makes the client of a server that has started.
func (r *real) meet(t *testing.T) {
	t.Helper()
	key, err := os.ReadFile(filepath.Join(r.data, "admin.key"))
	if err != nil {
		t.Fatal(err)
	}
	r.Client = client.New(r.url, strings.TrimSpace(string(key)))
}

func (r *real) kill(t *testing.T) {
	t.Helper()
	if err := r.stop(os.Kill); err != nil {
		t.Fatal(err)
	}
}

// sh runs a line and returns its output, which must come with exit code 0.
func (r *real) sh(ctx context.Context, id, line string) (string, error) {
	events, err := r.Exec(ctx, id, sandbox.Command{Shell: line, Lossless: true, Merge: true})
	if err != nil {
		return "", err
	}
	return collect(events)
}

func collect(events sandbox.Events) (string, error) {
	defer events.Close()
	var out bytes.Buffer
	for {
		e, err := events.Recv()
		if err != nil {
			return out.String(), err
		}
		out.Write(e.Data)
		if e.Exit != nil && e.Exit.Code != 0 {
			return out.String(), fmt.Errorf("exit %d: %s", e.Exit.Code, out.String())
		}
		if e.Exit != nil {
			return out.String(), nil
		}
	}
}

// engines lists the sentries that belong to the server's data directory.
func (r *real) engines() (found []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		args := strings.Split(string(b), "\x00")
		if err == nil && args[0] == "runsc-sandbox" && strings.Contains(string(b), r.data) {
			found = append(found, f)
		}
	}
	return found
}

// leftovers lists what the server's sandboxes have on the machine.
func (r *real) leftovers(t *testing.T) (all []string) {
	t.Helper()
	all = r.engines()
	entries, err := os.ReadDir(filepath.Join(r.data, "machines"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, err := sandbox.ParseID(e.Name()); err == nil {
			all = append(all, "machine "+e.Name())
		}
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/berth/*/*")
	for _, g := range groups {
		if _, err := sandbox.ParseID(filepath.Base(g)); err == nil && r.knows(filepath.Base(g)) {
			all = append(all, g)
		}
	}
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(b), r.data) {
		all = append(all, "a mount")
	}
	return all
}

// knows reports whether the server's log names the id: groups of other servers
// on the machine are not this one's.
func (r *real) knows(id string) bool {
	b, err := os.ReadFile(r.log)
	return err == nil && strings.Contains(string(b), id)
}

// TestKilledWhileCreating kills the server at moments spread over a create. What
// the next server lists works; of all else nothing is left.
func TestKilledWhileCreating(t *testing.T) {
	r := startReal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	begin := time.Now()
	if _, err := r.Create(ctx, sandbox.CreateRequest{}); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(begin)
	const rounds = 12
	for round := range rounds {
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.Create(ctx, sandbox.CreateRequest{})
		}()
		time.Sleep(whole * time.Duration(round) / (rounds - 2)) // the moment is what is tested
		r.kill(t)
		<-done
		r.again(t)
		page, err := r.List(ctx, sandbox.ListQuery{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sandboxes {
			if s.State != sandbox.Running {
				t.Errorf("round %d: %s is %s: %s", round, s.ID, s.State, s.Reason)
			} else if out, err := r.sh(ctx, string(s.ID), "echo usable"); err != nil || out != "usable\n" {
				t.Errorf("round %d: %s is listed and does not work: %q, %v", round, s.ID, out, err)
			}
		}
		if n := len(r.engines()); n != len(page.Sandboxes) {
			t.Errorf("round %d: %d sandboxes are listed and %d run", round, len(page.Sandboxes), n)
		}
	}
	if err := r.suite.run([]string{"BERTH_URL=" + r.url, "BERTH_DATA=" + r.data}, "rm", "--all", "-f"); err != nil {
		t.Fatal(err)
	}
	if left := r.leftovers(t); len(left) > 0 {
		t.Errorf("left on the machine: %q", left)
	}
}

// TestKillingTheServerEndsNoSandbox reads half of a stream, kills the server and
// reads the other half from the next one.
func TestKillingTheServerEndsNoSandbox(t *testing.T) {
	r := startReal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s, err := r.Create(ctx, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := string(s.ID)
	const lines = 200
	events, err := r.Exec(ctx, id, sandbox.Command{Shell: fmt.Sprintf("for i in $(seq %d); do echo line $i; sleep 0.02; done", lines), Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	var process string
	for got.Len() < 200 {
		e, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if e.Started != nil {
			process = e.Started.ID
		}
		got.Write(e.Data)
	}
	r.kill(t)
	for { // what was under way is still given, then the stream breaks
		e, err := events.Recv()
		if err != nil {
			break
		}
		got.Write(e.Data)
	}
	events.Close()
	r.again(t)
	events, err = r.Attach(ctx, id, process, sandbox.Offsets{Stdout: int64(got.Len())})
	if err != nil {
		t.Fatal(err)
	}
	rest, err := collect(events)
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i+1)
	}
	if got.WriteString(rest); got.String() != want.String() {
		t.Errorf("the two halves give %d bytes, want the %d of all lines in order", got.Len(), want.Len())
	}
}

// TestFiveHundredCyclesLeakNothing makes, uses and removes sandboxes and counts
// what the machine and the server hold before and after.
func TestFiveHundredCyclesLeakNothing(t *testing.T) {
	r := startReal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	cycle := func() error {
		s, err := r.Create(ctx, sandbox.CreateRequest{})
		if err != nil {
			return err
		}
		out, err := r.sh(ctx, string(s.ID), "echo $((6*7))")
		if err == nil && out != "42\n" {
			err = fmt.Errorf("output %q", out)
		}
		return errors.Join(err, r.Remove(ctx, string(s.ID)))
	}
	// Some first, so that what is made once is there.
	for range 10 {
		if err := cycle(); err != nil {
			t.Fatal(err)
		}
	}
	pid := r.cmd.Process.Pid
	descriptors, tasks := count(t, pid, "fd"), count(t, pid, "task")
	var n atomic.Int64
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for n.Add(1) <= 500 && ctx.Err() == nil {
				if err := cycle(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	workers.Wait()
	if left := r.leftovers(t); len(left) > 0 {
		t.Errorf("left on the machine: %q", left)
	}
	// Four workers' connections and the runtime's threads may have come; nothing
	// that grows with the number of cycles may.
	if now := count(t, pid, "fd"); now > descriptors+40 {
		t.Errorf("the server holds %d descriptors, %d before", now, descriptors)
	}
	if now := count(t, pid, "task"); now > tasks+40 {
		t.Errorf("the server has %d threads, %d before", now, tasks)
	}
}

func count(t *testing.T, pid int, what string) int {
	t.Helper()
	d, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, what))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return len(names)
}
