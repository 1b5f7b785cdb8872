package gvisor_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// newShellDriver is a driver that starts engines ahead.
func newShellDriver(t *testing.T, dir string, most int) *gvisor.Driver {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: gVisor sandboxes need root")
	}
	d, err := gvisor.New(gvisor.Config{Dir: dir, Guest: guestBinary, Shells: gvisor.Shells{Most: most}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// waitForShells waits until so many engines wait for machines like spec.
func waitForShells(t *testing.T, d *gvisor.Driver, spec driver.Spec, n int) (pids []int) {
	t.Helper()
	d.ExpectShell(spec)
	return someShells(t, d, n)
}

// someShells waits until so many engines wait.
func someShells(t *testing.T, d *gvisor.Driver, n int) (pids []int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if pids = d.Shells(); len(pids) >= n {
			return pids
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d engines wait, wanted %d", len(pids), n)
		}
	}
}

// TestShells makes machines in every way of engines that waited. Each is what it
// would be otherwise, and when all are gone nothing is left.
func TestShells(t *testing.T) {
	dir := t.TempDir()
	d := newShellDriver(t, dir, 2)
	usual := newSpec(t)
	usual.Hostname = "first"
	create(t, d, usual)
	limits := must(t, func() ([]string, error) { return d.LimitsOf(usual.ID) })

	// A new guest.
	spec := newSpec(t)
	spec.Hostname = "second"
	waited := waitForShells(t, d, spec, 1)
	b := create(t, d, spec)
	if pid := d.Engine(spec.ID); !slices.Contains(waited, pid) {
		t.Errorf("its engine is %d, and those that waited %v", pid, waited)
	}
	if got := b.mustSh(t, "user", "hostname; echo kept > ~/file; sleep 10000 > /dev/null 2>&1 & echo $! > ~/pid; sync"); got != "second" {
		t.Errorf("inside: %q", got)
	}
	if got := must(t, func() ([]string, error) { return d.LimitsOf(spec.ID) }); !slices.Equal(got, limits) {
		t.Errorf("its limits are %q, and were to be %q", got, limits)
	}

	// A wake, twice: what wakes can be put aside again.
	for range 2 {
		saved, err := d.Pause(t.Context(), b.Machine, driver.KeepMemory)
		if err != nil {
			t.Fatal(err)
		}
		waited = waitForShells(t, d, spec, 1)
		m, err := d.Resume(t.Context(), spec, saved)
		if err != nil {
			t.Fatal(err)
		}
		if pid := d.Engine(spec.ID); !slices.Contains(waited, pid) {
			t.Errorf("its engine is %d, and those that waited %v", pid, waited)
		}
		b = client(t, m)
		if got := b.mustSh(t, "user", "cat ~/file; kill -0 $(cat ~/pid) && echo lives; hostname"); got != "kept\nlives\nsecond" {
			t.Errorf("inside after the wake: %q", got)
		}
	}

	specs := []driver.Spec{newSpec(t), newSpec(t), newSpec(t)} // of which more are wanted than wait
	forkInShells(t, d, b, waitForShells(t, d, spec, 1), specs)

	// A later process takes such a machine up.
	state := b.State()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	again := newDriver(t, dir)
	live, err := again.Recover(t.Context(), spec.ID, state)
	if err != nil {
		t.Fatal(err)
	}
	if got := client(t, live).mustSh(t, "user", "cat ~/file; kill -0 $(cat ~/pid) && echo lives"); got != "kept\nlives" {
		t.Errorf("inside, taken up: %q", got)
	}
	all := []sandbox.ID{usual.ID, spec.ID, specs[0].ID, specs[1].ID, specs[2].ID}
	if ids, err := again.Traces(); err != nil || len(ids) != len(all) {
		t.Errorf("there is %q of the machines %q: %v", ids, all, err)
	}
}

// forkInShells forks a machine that has ~/file and ~/pid: at least one of the children
// is made of an engine that waited.
func forkInShells(t *testing.T, d *gvisor.Driver, b box, waited []int, specs []driver.Spec) {
	t.Helper()
	f, err := d.Fork(t.Context(), b.Machine, specs)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for i, one := range f.Each {
		if one.Err != nil {
			t.Fatal(one.Err)
		}
		if slices.Contains(waited, d.Engine(specs[i].ID)) {
			found++
		}
		child := client(t, one.Machine)
		if got := child.mustSh(t, "user", "cat ~/file; kill -0 $(cat ~/pid) && echo lives; echo changed > ~/file"); got != "kept\nlives" {
			t.Errorf("inside a child: %q", got)
		}
	}
	if found == 0 {
		t.Errorf("no child has an engine that waited")
	}
	if got := b.mustSh(t, "user", "cat ~/file"); got != "kept" {
		t.Errorf("a child has written to its parent: %q", got)
	}
}

// TestADeadShellIsPassedOver kills an engine that waits: the machine that would have
// been made of it is made without.
func TestADeadShellIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	d := newShellDriver(t, dir, 1)
	spec := newSpec(t)
	guest := create(t, d, newSpec(t)) // makes the guest's image
	for _, pid := range waitForShells(t, d, spec, 1) {
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	b := create(t, d, spec)
	if got := b.mustSh(t, "user", "hostname"); got != spec.Hostname {
		t.Errorf("inside: %q", got)
	}
	for _, one := range []box{b, guest} {
		if err := one.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(d, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestShellsAreSwept leaves engines that wait behind, as a process does that is
// killed: the next one removes them, and nothing else.
func TestShellsAreSwept(t *testing.T) {
	dir := t.TempDir()
	d := newShellDriver(t, dir, 1)
	spec := newSpec(t)
	b := create(t, d, spec)
	waitForShells(t, d, spec, 1)
	state := b.State()
	d.Abandon()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}

	again := newDriver(t, dir)
	swept, err := again.Sweep(t.Context(), []sandbox.ID{spec.ID})
	if err != nil || len(swept) != 1 {
		t.Fatalf("swept %q: %v", swept, err)
	}
	live, err := again.Recover(t.Context(), spec.ID, state)
	if err != nil {
		t.Fatal(err)
	}
	if got := client(t, live).mustSh(t, "user", "echo lives"); !strings.Contains(got, "lives") {
		t.Errorf("inside: %q", got)
	}
	if ids, err := again.Traces(); err != nil || !slices.Equal(ids, []sandbox.ID{spec.ID}) {
		t.Errorf("left: %q, %v", ids, err)
	}
}

// TestShellsAreHandedOutOnce makes machines at once of engines that wait, that are being
// started and of new ones: no two have the same, and none is too many.
func TestShellsAreHandedOutOnce(t *testing.T) {
	dir := t.TempDir()
	const most = 2
	d := newShellDriver(t, dir, most)
	first := newSpec(t)
	create(t, d, first)
	waitForShells(t, d, first, 1)
	var mu sync.Mutex
	var boxes []box
	engines := map[int]bool{d.Engine(first.ID): true}
	var all sync.WaitGroup
	for range 4 {
		spec := newSpec(t)
		all.Go(func() {
			m, err := d.Create(t.Context(), spec)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			boxes = append(boxes, client(t, m))
			if engines[d.Engine(spec.ID)] {
				t.Error("two machines have one engine")
			}
			engines[d.Engine(spec.ID)] = true
			if n := len(d.Shells()); n > most {
				t.Errorf("%d engines wait, of %d", n, most)
			}
		})
	}
	all.Wait()
	for _, b := range boxes {
		if idle, err := d.Idle(b.ID()); err != nil || idle {
			t.Errorf("a machine comes after all others: %v", err)
		}
		if got := b.mustSh(t, "user", "hostname"); got == "" {
			t.Error("a machine has no name")
		}
	}
	for _, pid := range someShells(t, d, most) {
		if engines[pid] {
			t.Error("an engine that waits is a machine's")
		}
	}
}

// TestShellsGiveWay takes the host's memory away: the engines that wait are ended, and
// no more are started until it is back.
func TestShellsGiveWay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: gVisor sandboxes need root")
	}
	dir := t.TempDir()
	var available atomic.Int64
	available.Store(1 << 30)
	d, err := gvisor.New(gvisor.Config{Dir: dir, Guest: guestBinary, Shells: gvisor.Shells{
		Most: 1, Reserve: 1 << 30, Available: func() (int64, error) { return available.Load(), nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	spec := newSpec(t)
	b := create(t, d, spec)
	waitForShells(t, d, spec, 1)

	available.Store(1 << 20)
	for deadline := time.Now().Add(2 * time.Minute); len(d.Shells()) > 0; time.Sleep(5 * time.Millisecond) {
		d.ExpectShell(spec) // looks
		if time.Now().After(deadline) {
			t.Fatal("engines wait although there is no memory")
		}
	}
	if got := b.mustSh(t, "user", "echo lives"); got != "lives" {
		t.Errorf("inside: %q", got)
	}
	available.Store(1 << 30)
	waitForShells(t, d, spec, 1)
	if err := errors.Join(b.Stop(t.Context()), d.Close()); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(d, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
