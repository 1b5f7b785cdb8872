package gvisor_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// Variables that make this test binary a process whose driver starts engines ahead and
// does nothing else, until it is killed.
const (
	shelvesIn    = "BERTH_TEST_SHELVES_IN"    // the driver's folder
	shelvesGuest = "BERTH_TEST_SHELVES_GUEST" // the guest's program
	shelvesRoot  = "BERTH_TEST_SHELVES_ROOT"  // of the machines that are expected
)

// shelves is that process; TestMain calls it.
func shelves() {
	dir := os.Getenv(shelvesIn)
	if dir == "" {
		return
	}
	guest := func() ([]byte, error) { return os.ReadFile(os.Getenv(shelvesGuest)) }
	d, err := gvisor.New(gvisor.Config{Dir: dir, Guest: guest, Shells: gvisor.Shells{Most: 2}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	d.ExpectShell(driver.Spec{ID: sandbox.NewID(), Root: os.Getenv(shelvesRoot), Hostname: "box", Limits: sandbox.DefaultLimits()})
	time.Sleep(time.Hour)
}

// TestHalfStartedShellsAreSwept kills the process that starts an engine ahead, at each
// step that can be seen: the next one removes what there is of it.
func TestHalfStartedShellsAreSwept(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	spec := newSpec(t)
	if err := create(t, d, spec).Stop(t.Context()); err != nil { // makes the guest's image
		t.Fatal(err)
	}
	guest := filepath.Join(t.TempDir(), "guest")
	if err := os.WriteFile(guest, must(t, guestBinary), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		step string
		come func() bool
	}{
		{"a folder", func() bool { return someMatch(filepath.Join(dir, "?*", "bundle")) }},
		{"a group", func() bool {
			return someMatch("/sys/fs/cgroup/memory/berth/"+d.Tag()+"/*/cgroup.procs") || someMatch("/sys/fs/cgroup/berth/"+d.Tag()+"/*/cgroup.procs")
		}},
		{"a command", func() bool { return len(engines(dir)) > 0 }},
		{"a socket", func() bool { return someMatch(filepath.Join(dir, "?*", "engine", "*.sock")) }},
		{"an engine", func() bool { return slices.ContainsFunc(engines(dir), isSentry) }},
		{"its number", func() bool { return someMatch(filepath.Join(dir, "?*", "pid")) }},
	} {
		t.Run(c.step, func(t *testing.T) { killedAt(t, dir, guest, spec.Root, c.come) })
	}
}

// killedAt kills a process that starts engines ahead once something has come.
func killedAt(t *testing.T, dir, guest, root string, come func() bool) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), shelvesIn+"="+dir, shelvesGuest+"="+guest, shelvesRoot+"="+root)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(2 * time.Minute); !come(); time.Sleep(100 * time.Microsecond) {
		if time.Now().After(deadline) {
			t.Error("no engine is started")
			break
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	next := newDriver(t, dir)
	if _, err := next.Sweep(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	// A command that had not joined its group yet finds none, and ends.
	for deadline := time.Now().Add(time.Minute); len(engines(dir)) > 0 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
	}
	if left := leftovers(next, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// someMatch reports whether something is there whose path matches.
func someMatch(pattern string) bool {
	found, err := filepath.Glob(pattern)
	return err == nil && len(found) > 0
}

// isSentry reports whether a line of engines is of the engine itself, and of none of
// its commands.
func isSentry(line string) bool { return strings.Contains(line, ": runsc-sandbox ") }
