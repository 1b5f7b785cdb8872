package gvisor_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// writer ticks in a file that it has mapped to be written, and tells what it sees of
// another that it has mapped to be read.
const writer = `
import mmap, os, time
w = open("/workspace/ticks", "r+b"); m = mmap.mmap(w.fileno(), 0)
r = open("/workspace/big", "rb"); seen = mmap.mmap(r.fileno(), 0, prot=mmap.PROT_READ)
seen[4096 * 50]
n = 0
open("/tmp/ready", "w").write("x")
while True:
    n += 1
    m[0:8] = b"%08d" % n
    if os.path.exists("/tmp/ask"):
        open("/tmp/told.new", "wb").write(seen[4096 * 50:4096 * 50 + 5] + m[8192:8197])
        os.rename("/tmp/told.new", "/tmp/told")
        os.unlink("/tmp/ask")
    time.sleep(0.005)
`

// start begins a file of 40 MiB, a smaller one and a writer.
const startWriter = `set -e; head -c 40M /dev/urandom > /workspace/big; head -c 1M /dev/urandom > /workspace/ticks; head -c 4096 /dev/urandom > /workspace/page
md5sum /workspace/big /workspace/page > /workspace/sums
cat > /workspace/writer.py << 'END'
` + writer + `END
setsid python3 /workspace/writer.py > /tmp/log 2>&1 & while ! test -s /tmp/ready; do sleep 0.05; done`

// diverge marks files of a machine with a mark of five letters or more, by writes and
// by length, and compares what every way to look at them shows.
const diverge = `set -e; set -- MARK
a=$(head -c 8 /workspace/ticks); i=0; while [ "$(head -c 8 /workspace/ticks)" = "$a" ]; do sleep 0.05; i=$((i+1)); test $i -lt 600; done
printf %.5s "$1" | dd of=/workspace/big bs=4096 seek=50 conv=notrunc 2> /dev/null
printf %.5s "$1" | dd of=/workspace/ticks bs=4096 seek=2 conv=notrunc 2> /dev/null
touch /tmp/ask; i=0; while test -e /tmp/ask; do sleep 0.05; i=$((i+1)); test $i -lt 600; done
test "$(cat /tmp/told)" = "$(printf %.5s "$1")$(printf %.5s "$1")"
test "$(dd if=/workspace/big bs=4096 skip=50 count=1 2> /dev/null | head -c 5)" = "$(printf %.5s "$1")"
truncate -s 1000 /workspace/page; truncate -s 4096 /workspace/page
test "$(tail -c 3096 /workspace/page | tr -d '\0' | wc -c)" = 0
echo "$1" >> /workspace/page; tail -n 1 /workspace/page | grep -q "$1"
`

func (b box) diverge(t *testing.T, mark string) {
	t.Helper()
	b.mustSh(t, "user", strings.ReplaceAll(diverge, "MARK", mark))
}

// bases lists the bases of a machine, newest last.
func bases(t *testing.T, dir string, id sandbox.ID) []string {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, string(id), "upper", "base.*"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestForksShareWhatWasWritten forks a machine with large files on a disk that cannot
// share them, through three generations: none copies them, each has them, and what
// one changes no other sees, however it changes it.
func TestForksShareWhatWasWritten(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	if d.Clones() {
		t.Skip("SKIPPED LOUDLY: this disk shares files by itself")
	}
	first := create(t, d, newSpec(t))
	first.mustSh(t, "user", startWriter)
	all := []box{first}
	for generation := range 3 {
		parent := all[len(all)-1]
		f, err := d.Fork(t.Context(), parent.Machine, []driver.Spec{newSpec(t)})
		if err != nil || f.Each[0].Err != nil {
			t.Fatalf("%v %+v", err, f.Each)
		}
		child := client(t, f.Each[0].Machine)
		all = append(all, child)
		if n := len(bases(t, dir, child.ID())); n == 0 {
			t.Errorf("generation %d: the child shares nothing", generation)
		}
		child.mustSh(t, "user", "md5sum -c --quiet /workspace/sums")
		if generation == 0 {
			child.mustSh(t, "user", "head -c 33M /dev/urandom > /workspace/more; md5sum /workspace/more >> /workspace/sums")
		}
	}
	if n := len(bases(t, dir, all[3].ID())); n != 2 {
		t.Errorf("the last lies in %d files, want what the first and the second wrote", n)
	}
	for i, m := range all {
		m.diverge(t, fmt.Sprintf("mark-%d", i))
	}
	for i, m := range all { // nobody has seen another's
		m.mustSh(t, "user", fmt.Sprintf("tail -n 1 /workspace/page | grep -q mark-%d && head -c 204805 /workspace/big | tail -c 5 | grep -q mark-", i))
	}
}

// TestASharedLayerIsPutAside takes a machine that shares files with others through
// pauses, with memory and without, through a copy of what is put aside, and through
// capture and restore.
func TestASharedLayerIsPutAside(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	if d.Clones() {
		t.Skip("SKIPPED LOUDLY: this disk shares files by itself")
	}
	spec := newSpec(t)
	m := create(t, d, spec)
	m.mustSh(t, "user", startWriter)
	captured := t.TempDir()
	if err := d.Capture(t.Context(), m.Machine, driver.KeepMemory, captured); err != nil {
		t.Fatal(err)
	}
	m = again(t, d, m, spec, driver.KeepMemory, func(saved []byte) {
		for range 2 {
			forks, err := d.ForkSaved(t.Context(), spec.ID, saved, []driver.Spec{newSpec(t)})
			if err != nil || forks.Each[0].Err != nil {
				t.Fatalf("%v %+v", err, forks.Each)
			}
			child := client(t, forks.Each[0].Machine)
			child.mustSh(t, "user", "md5sum -c --quiet /workspace/sums")
			child.diverge(t, "child")
		}
	})
	m.mustSh(t, "user", "md5sum -c --quiet /workspace/sums")
	m.diverge(t, "woken")
	m.mustSh(t, "user", "md5sum /workspace/big /workspace/page > /workspace/sums")
	if len(bases(t, dir, spec.ID)) == 0 {
		t.Error("it shares nothing with those that were made of it")
	}
	m = again(t, d, m, spec, driver.KeepDisk, func([]byte) {})
	m.mustSh(t, "user", "md5sum -c --quiet /workspace/sums")
	if left := bases(t, dir, spec.ID); len(left) > 0 {
		t.Errorf("after a stop it lies in %q still", left)
	}
	for i := range 2 {
		from, err := d.Restore(t.Context(), newSpec(t), captured)
		if err != nil {
			t.Fatal(err)
		}
		child := client(t, from)
		child.mustSh(t, "user", "md5sum -c --quiet /workspace/sums")
		child.diverge(t, fmt.Sprintf("copy-%d", i))
	}
}

// again puts a machine aside and takes it up.
func again(t *testing.T, d *gvisor.Driver, m box, spec driver.Spec, keep driver.Keep, aside func(saved []byte)) box {
	t.Helper()
	saved, err := d.Pause(t.Context(), m.Machine, keep)
	if err != nil {
		t.Fatal(err)
	}
	aside(saved)
	woken, err := d.Resume(t.Context(), spec, saved)
	if err != nil {
		t.Fatal(err)
	}
	return client(t, woken)
}

// TestAFreezeThatWasCutShort takes a machine up that a server was freezing the layer
// of when it was killed: before and after the engine went on in the new file.
func TestAFreezeThatWasCutShort(t *testing.T) {
	for _, done := range []bool{false, true} {
		dir := t.TempDir()
		d := newDriver(t, dir)
		spec := newSpec(t)
		m := create(t, d, spec)
		m.mustSh(t, "user", "head -c 40M /dev/urandom > /workspace/big; md5sum /workspace/big > /workspace/sums")
		if err := d.CutFreezeShort(m.Machine, done); err != nil {
			t.Fatal(err)
		}
		state := m.State()
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		d = newDriver(t, dir)
		live, err := d.Recover(t.Context(), spec.ID, state)
		if err != nil {
			t.Fatal(err)
		}
		m = client(t, live)
		if _, err := os.Stat(filepath.Join(dir, string(spec.ID), "upper", "layer.next")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("done %v: what was begun is still there: %v", done, err)
		}
		if n := len(bases(t, dir, spec.ID)); n != map[bool]int{false: 0, true: 1}[done] {
			t.Errorf("done %v: %d bases", done, n)
		}
		m.mustSh(t, "user", "echo after > /workspace/after")
		m = again(t, d, m, spec, driver.KeepMemory, func([]byte) {})
		if out := m.mustSh(t, "user", "md5sum -c --quiet /workspace/sums; cat /workspace/after"); strings.TrimSpace(out) != "after" {
			t.Errorf("done %v: %q", done, out)
		}
	}
}

// savedVerbs are what may be done with a machine that was put aside, or with what was
// captured of it, and when the process that does so is killed, in milliseconds.
var savedVerbs = map[string][]time.Duration{"saved: fork": {5, 40, 90}, "saved: capture": {10, 40}, "saved: restore": {10, 60, 110}}

// useSavedAsVictim is what the process does that TestSavedAfterAKill kills.
func useSavedAsVictim(t *testing.T, d *gvisor.Driver, id sandbox.ID, saved []byte, verb string) {
	dir := os.Getenv(victimDir)
	spec := newSpec(t)
	os.WriteFile(filepath.Join(dir, "ready"), nil, 0o600)
	var err error
	switch verb {
	case "saved: fork":
		_, err = d.ForkSaved(t.Context(), id, saved, []driver.Spec{spec})
	case "saved: capture":
		err = d.CaptureSaved(t.Context(), id, saved, t.TempDir())
	case "saved: restore":
		_, err = d.Restore(t.Context(), spec, filepath.Join(dir, "captured"))
	}
	t.Log(err)
}

// TestSavedAfterAKill kills the process that makes others of a machine that was put
// aside, at moments spread over the whole of it: the machine, and what was captured of
// it, serve as before, and nothing is left of the others after a sweep.
func TestSavedAfterAKill(t *testing.T) {
	if os.Getenv(victimVerb) != "" {
		t.Skip("this is the victim")
	}
	dir := t.TempDir()
	d := newDriver(t, dir)
	spec := newSpec(t)
	m := create(t, d, spec)
	m.mustSh(t, "user", "head -c 33M /dev/urandom > ~/big; md5sum ~/big > ~/sum; sleep 10000 > /dev/null 2>&1 & echo $! > ~/pid")
	saved, err := d.Pause(t.Context(), m.Machine, driver.KeepMemory)
	if err != nil {
		t.Fatal(err)
	}
	captured := filepath.Join(dir, "captured")
	if err := errors.Join(os.Mkdir(captured, 0o700), d.CaptureSaved(t.Context(), spec.ID, saved, captured), d.Close()); err != nil {
		t.Fatal(err)
	}
	const whole = "md5sum -c --quiet ~/sum && kill -0 $(cat ~/pid) && echo whole"
	for verb, moments := range savedVerbs {
		for _, after := range moments {
			killed(t, verb, dir, spec.ID, after*time.Millisecond)
		}
		again := newDriver(t, dir)
		found, err := again.Find(t.Context(), spec.ID)
		if err != nil || found.Saved == nil {
			t.Fatalf("%s: %+v, %v", verb, found, err)
		}
		if _, err := again.Sweep(t.Context(), []sandbox.ID{spec.ID}); err != nil {
			t.Fatal(err)
		}
		if ids, err := again.Traces(); err != nil || len(ids) != 1 {
			t.Errorf("%s: left: %q, %v", verb, ids, err)
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
	d = newDriver(t, dir)
	copied, err := d.Restore(t.Context(), newSpec(t), captured)
	if err != nil {
		t.Fatal(err)
	}
	woken, err := d.Resume(t.Context(), spec, saved)
	if err != nil {
		t.Fatal(err)
	}
	for what, m := range map[string]driver.Machine{"what was captured": copied, "the machine": woken} {
		if out, _ := client(t, m).sh(t, "user", whole); strings.TrimSpace(out) != "whole" {
			t.Errorf("%s: %q", what, out)
		}
	}
}
