package gvisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// forkAsVictim is what the process does that TestForkAfterAKill kills.
func forkAsVictim(t *testing.T, d *gvisor.Driver, id sandbox.ID, state []byte, verb string) {
	m, err := d.Recover(t.Context(), id, state)
	if err != nil {
		t.Fatal(err)
	}
	specs := []driver.Spec{newSpec(t), newSpec(t)}
	os.WriteFile(filepath.Join(os.Getenv(victimDir), "ready"), nil, 0o600)
	if verb == "fork" {
		_, err = d.Fork(t.Context(), m, specs)
	} else {
		err = d.Capture(t.Context(), m, driver.KeepMemory, t.TempDir())
	}
	t.Log(err)
}

// TestForkAfterAKill kills the process that forks or captures at moments spread
// over the whole of it: the machine runs on with its limits, and of the children
// that nobody knows nothing is left after a sweep.
func TestForkAfterAKill(t *testing.T) {
	if os.Getenv(victimVerb) != "" {
		t.Skip("this is the victim")
	}
	for verb, moments := range map[string][]time.Duration{"fork": {20, 70, 110, 160}, "capture": {30}} {
		for _, after := range moments {
			t.Run(verb+" "+(after*time.Millisecond).String(), func(t *testing.T) {
				forkAfterAKill(t, verb, after*time.Millisecond)
			})
		}
	}
}

func forkAfterAKill(t *testing.T, verb string, after time.Duration) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	spec := newSpec(t)
	m, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	limits := must(t, func() ([]string, error) { return d.LimitsOf(spec.ID) })
	b := client(t, m)
	// So much that the layer is frozen, where the disk cannot share it.
	b.mustSh(t, "user", "echo kept > ~/file; head -c 33M /dev/urandom > ~/big; md5sum ~/big > ~/sum; sleep 10000 > /dev/null 2>&1 & echo $! > ~/pid")
	state := m.State()
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	killed(t, verb, dir, spec.ID, after)

	again := newDriver(t, dir)
	live, err := again.Recover(t.Context(), spec.ID, state)
	if err != nil {
		t.Fatalf("recover: %v", err)
	}
	b = client(t, live)
	if got := b.mustSh(t, "user", "md5sum -c --quiet ~/sum; cat ~/file; kill -0 $(cat ~/pid) && echo lives"); got != "kept\nlives" {
		t.Errorf("inside: %q", got)
	}
	if got := must(t, func() ([]string, error) { return again.LimitsOf(spec.ID) }); !slices.EqualFunc(got, limits, sameLimit) {
		t.Errorf("its limits are %q, and were %q", got, limits)
	}
	swept, err := again.Sweep(t.Context(), []sandbox.ID{spec.ID})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d of the children were swept", len(swept))
	entries := must(t, func() ([]os.DirEntry, error) { return os.ReadDir(filepath.Join(dir, string(spec.ID))) })
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "fork-") || e.Name() == "lifted.json" {
			t.Errorf("left in the machine's folder: %s", e.Name())
		}
	}
	// It can be forked as if nothing had been.
	f, err := again.Fork(t.Context(), live, []driver.Spec{newSpec(t)})
	if err != nil || f.Each[0].Err != nil {
		t.Fatalf("fork: %v %+v", err, f)
	}
	if got := client(t, f.Each[0].Machine).mustSh(t, "user", "md5sum -c --quiet ~/sum; cat ~/file; kill -0 $(cat ~/pid) && echo lives"); got != "kept\nlives" {
		t.Errorf("inside the child: %q", got)
	}
	for _, m := range []driver.Machine{f.Each[0].Machine, live} {
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if left := leftovers(again, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// sameLimit compares "NAME VALUE" of a cgroup. The memory's wall may have been moved
// out by what the machine keeps for children, which here is a few MiB at most.
func sameLimit(got, want string) bool {
	name, value, _ := strings.Cut(got, " ")
	_, before, _ := strings.Cut(want, " ")
	if !strings.HasPrefix(name, "memory.") {
		return got == want
	}
	n, err1 := strconv.ParseInt(value, 10, 64)
	w, err2 := strconv.ParseInt(before, 10, 64)
	return errors.Join(err1, err2) == nil && strings.HasPrefix(want, name+" ") && n >= w && n <= w+32<<20
}

// TestForkWithoutRoom forks on a disk that cannot hold the copies: the machine
// runs on, and nothing else is left.
func TestForkWithoutRoom(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: mounting a small disk needs root")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=300m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	d := newDriver(t, filepath.Join(disk, "machines"))
	b := create(t, d, newSpec(t))
	// What a program may write through a mapping cannot be shared.
	b.mustSh(t, "user", `head -c 200M /dev/urandom > /workspace/big; md5sum /workspace/big > /workspace/sum
setsid python3 -c "
import mmap, time
f = open('/workspace/big', 'r+b')
m = mmap.mmap(f.fileno(), 0)
m[0]
open('/tmp/ready', 'w').write('x')
time.sleep(100000)
" > /dev/null 2>&1 & while ! test -s /tmp/ready; do sleep 0.05; done`)
	_, err := d.Fork(t.Context(), b.Machine, []driver.Spec{newSpec(t)})
	if sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "" {
		t.Fatalf("fork: %v (%s)", err, sandbox.HintOf(err))
	}
	err = d.Capture(t.Context(), b.Machine, driver.KeepMemory, must(t, func() (string, error) { return os.MkdirTemp(disk, "") }))
	if sandbox.KindOf(err) != sandbox.Exhausted {
		t.Fatalf("capture: %v", err)
	}
	b.mustSh(t, "user", "md5sum -c /workspace/sum")
	ids, err := d.Traces()
	if err != nil || len(ids) != 1 {
		t.Errorf("left: %q, %v", ids, err)
	}
}

// TestForkChargesNobody: what is written of a machine's memory while it is forked
// counts against its limit at no time, and a child's use is its own.
func TestForkChargesNobody(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t, func(l *sandbox.Limits) { l.MemoryBytes = 320 << 20 }))
	b.mustSh(t, "user", `setsid python3 -c "
import time
b = bytearray(200 << 20)
for i in range(0, len(b), 4096): b[i] = i // 4096 % 251 + 1
open('/tmp/ready', 'w').write('x')
time.sleep(100000)
" > /dev/null 2>&1 & while ! test -s /tmp/ready; do sleep 0.05; done`)
	spec := newSpec(t, func(l *sandbox.Limits) { l.MemoryBytes = 320 << 20 })
	before := must(t, func() (driver.Usage, error) { return b.Usage(t.Context()) })
	for range 3 {
		spec.ID = sandbox.NewID()
		f, err := d.Fork(t.Context(), b.Machine, []driver.Spec{spec})
		if err != nil || f.Each[0].Err != nil {
			t.Fatalf("%v %+v", err, f.Each)
		}
		child := client(t, f.Each[0].Machine)
		child.mustSh(t, "user", "true")
		if err := child.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		after := must(t, func() (driver.Usage, error) { return b.Usage(t.Context()) })
		if grown := after.MemoryBytes - before.MemoryBytes; grown > 48<<20 {
			t.Errorf("a fork has charged the machine with %d MiB", grown>>20)
		}
	}
}

// TestForkOfOneThatDies kills a machine's engine once its children load: the fork says
// so, and nothing is left of children that are there already.
func TestForkOfOneThatDies(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	b := create(t, d, newSpec(t))
	f, err := d.ForkAndDie(t.Context(), b.Machine, []driver.Spec{newSpec(t), newSpec(t)})
	if err == nil || len(f.Each) > 0 {
		t.Fatalf("%+v, %v", f, err)
	}
	ids, err := d.Traces()
	if err != nil || len(ids) != 1 || ids[0] != b.ID() {
		t.Errorf("left: %q, %v", ids, err)
	}
	exit, err := b.Wait(t.Context())
	if err != nil || exit.Asked || exit.Reason == "" {
		t.Errorf("the machine's end: %+v, %v", exit, err)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(d, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
