package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/drivertest"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// leftovers lists what a driver on dir has on the machine: processes, cgroups,
// mounts, namespaces and folders of machines.
func leftovers(d *gvisor.Driver, dir string) []string {
	var all []string
	add := func(kind, what string) { all = append(all, kind+" "+what) }
	ids, err := d.Traces()
	if err != nil {
		add("error", err.Error())
	}
	for _, id := range ids {
		add("folder or cgroup", string(id))
	}
	filepath.WalkDir("/sys/fs/cgroup", func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && filepath.Base(filepath.Dir(p)) == d.Tag() {
			add("cgroup", p)
		}
		return nil
	})
	if b, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(b), dir) {
		add("mount", fmt.Sprint(dir, err))
	}
	for _, p := range engines(dir) {
		add("process", p)
	}
	return all
}

// engines lists live processes that were started for machines beneath dir.
func engines(dir string) []string {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.HasPrefix(string(b), "runsc") && strings.Contains(string(b), dir) {
			found = append(found, f+": "+strings.ReplaceAll(string(b), "\x00", " ")[:60])
		}
	}
	return found
}

// namespaces lists the network namespaces that this process holds. A process that
// holds one is among the leftovers; what other tests do is not looked at.
func namespaces() []string {
	seen := map[string]bool{}
	files, _ := filepath.Glob("/proc/self/fd/*")
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, "net:[") {
			seen[to] = true
		}
	}
	var all []string
	for ns := range seen {
		all = append(all, ns)
	}
	slices.Sort(all)
	return all
}

func TestDriver(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Harness {
		dir := t.TempDir()
		d := newDriver(t, dir)
		return drivertest.Harness{
			Driver: d,
			Spec:   func() driver.Spec { return newSpec(t) },
			Reopen: func(t *testing.T) driver.Driver {
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				return newDriver(t, dir)
			},
			Leftovers: func() []string { return leftovers(d, dir) },
		}
	})
}

// TestAFailureAtAnyStepLeavesNothing lets a create fail in each way that it can
// and then looks for what is left.
func TestAFailureAtAnyStepLeavesNothing(t *testing.T) {
	notAnImage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(notAnImage, []byte(strings.Repeat("not an image ", 10000)), 0o600); err != nil {
		t.Fatal(err)
	}
	garbage := func() ([]byte, error) { return []byte("\x7fELF this is no program"), nil }
	good := guestBinary
	for _, c := range []struct {
		name   string
		config gvisor.Config
		change func(*driver.Spec)
		kind   sandbox.Kind
	}{
		{"root that is no image", gvisor.Config{Guest: good}, func(s *driver.Spec) { s.Root = notAnImage }, ""},
		{"root that is not there", gvisor.Config{Guest: good}, func(s *driver.Spec) { s.Root = "/nonexistent" }, sandbox.NotFound},
		{"root that is relative", gvisor.Config{Guest: good}, func(s *driver.Spec) { s.Root = "base.erofs" }, sandbox.Invalid},
		{"guest that is no program", gvisor.Config{Guest: garbage}, func(*driver.Spec) {}, ""},
		{"no guest", gvisor.Config{}, func(*driver.Spec) {}, sandbox.Unsupported},
		{"engine that is not there", gvisor.Config{Guest: good, Exe: "/nonexistent"}, func(*driver.Spec) {}, ""},
		{"engine that is another program", gvisor.Config{Guest: good, Exe: "/bin/false"}, func(*driver.Spec) {}, ""},
		{"limits out of range", gvisor.Config{Guest: good}, func(s *driver.Spec) { s.Limits.MemoryBytes = -1 }, sandbox.Invalid},
		{"id that climbs", gvisor.Config{Guest: good}, func(s *driver.Spec) { s.ID = "../../../tmp/abcdefgh" }, sandbox.Invalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := newSpec(t)
			c.change(&spec)
			before := namespaces()
			c.config.Dir = t.TempDir()
			d, err := gvisor.New(c.config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
			m, err := d.Create(t.Context(), spec)
			if err == nil {
				m.Stop(t.Context())
				t.Fatal("it was made")
			}
			var typed *sandbox.Error
			if !errors.As(err, &typed) || (c.kind != "" && sandbox.KindOf(err) != c.kind) {
				t.Errorf("error %v is of kind %q, want %q", err, sandbox.KindOf(err), c.kind)
			}
			t.Log(err)
			nothingLeft(t, d, c.config.Dir, before)
		})
	}
}

// TestACreateThatIsCancelledLeavesNothing ends the caller's context at moments
// spread over the whole time that a create takes.
func TestACreateThatIsCancelledLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	before := namespaces()
	begin := time.Now()
	create(t, d, newSpec(t)).Stop(t.Context())
	whole := time.Since(begin)
	cancelled := 0
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), whole*time.Duration(i)/20)
		m, err := d.Create(ctx, newSpec(t))
		cancel()
		if err == nil {
			if err := m.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		cancelled++
		if k := sandbox.KindOf(err); k != sandbox.Timeout {
			t.Errorf("a create that met its deadline gives %q: %v", k, err)
		}
	}
	if cancelled == 0 {
		t.Error("no create was cut short: the test shows nothing")
	}
	nothingLeft(t, d, dir, before)
}

func nothingLeft(t *testing.T, d *gvisor.Driver, dir string, before []string) {
	t.Helper()
	if left := leftovers(d, dir); len(left) > 0 {
		t.Errorf("left on the machine: %q", left)
	}
	// A namespace ends with its last process, which the kernel may do a moment
	// after the process is gone.
	for range 100 {
		if extra := without(namespaces(), before); len(extra) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("namespaces left: %q", without(namespaces(), before))
}

func without(all, known []string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return slices.Contains(known, s) })
}

// TestAnEndedMachineSaysWhy kills a sentry from outside.
func TestAnEndedMachineSaysWhy(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	b := create(t, d, newSpec(t))
	if err := d.KillEngine(b.ID()); err != nil {
		t.Fatal(err)
	}
	exit, err := b.Wait(t.Context())
	if err != nil || exit.Asked || exit.Reason == "" {
		t.Errorf("exit %+v, %v: want one not asked for, with a reason", exit, err)
	}
	if _, err := b.Dial(t.Context()); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("dialling an ended machine: %v", err)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(d, dir); len(left) > 0 {
		t.Errorf("left on the machine: %q", left)
	}
}
