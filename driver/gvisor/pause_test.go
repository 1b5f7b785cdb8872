package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// TestAPauseLeavesTheLayerWhereItIs shows that a pause costs memory's size on
// disk, not the layer's.
func TestAPauseLeavesTheLayerWhereItIs(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	spec := newSpec(t)
	for _, keep := range []driver.Keep{driver.KeepMemory, driver.KeepDisk} {
		b := create(t, d, spec)
		b.mustSh(t, "user", filler(160)+" > /workspace/big && md5sum /workspace/big > /workspace/sum && rm -f /workspace/hole && truncate -s 1G /workspace/hole")
		saved, err := d.Pause(t.Context(), b.Machine, keep)
		if err != nil {
			t.Fatal(err)
		}
		if size := diskUse(t, filepath.Join(dir, string(spec.ID), "saved")); size > 100<<20 {
			t.Errorf("%s: %d bytes were saved for a sandbox that uses little memory", keep, size)
		}
		if live := engines(dir); len(live) > 0 {
			t.Errorf("%s: still running: %q", keep, live)
		}
		m, err := d.Resume(t.Context(), spec, saved)
		if err != nil {
			t.Fatal(err)
		}
		b = client(t, m)
		b.mustSh(t, "user", "md5sum -c /workspace/sum && stat -c %s /workspace/hole | grep -qx 1073741824")
		// What is written after has its place too, and removal gives it back.
		b.mustSh(t, "user", "rm /workspace/big && "+filler(100)+" > /workspace/big && md5sum /workspace/big > /workspace/sum && md5sum -c /workspace/sum")
		if err := b.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func diskUse(t *testing.T, dir string) (sum int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, _ os.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(p, &st)
		}
		sum += st.Blocks * 512
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestAPauseWithoutRoomChangesNothing pauses on a disk that cannot hold the
// memory.
func TestAPauseWithoutRoomChangesNothing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: mounting a small disk needs root")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=150m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	d := newDriver(t, filepath.Join(disk, "machines"))
	spec := newSpec(t)
	b := create(t, d, spec)
	b.mustSh(t, "user", `setsid python3 -c "
import time
b = bytearray(200 << 20)
for i in range(0, len(b), 4096): b[i] = 1
open('/tmp/held', 'w').write('x')
time.sleep(1000)" >/dev/null 2>&1 & while [ ! -e /tmp/held ]; do sleep 0.1; done`)
	_, err := d.Pause(t.Context(), b.Machine, driver.KeepMemory)
	if sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "" {
		t.Errorf("a pause without room gives %q: %v", sandbox.KindOf(err), err)
	}
	b.mustSh(t, "user", "pgrep -f bytearray >/dev/null && echo alive")
}

// TestADamagedSaveIsRefused changes saved bytes and then resumes.
func TestADamagedSaveIsRefused(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	before := namespaces()
	for _, damage := range []func(file string) error{
		func(f string) error { return os.Truncate(f, 100) },
		os.Remove,
	} {
		spec := newSpec(t)
		m, err := d.Create(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		saved, err := d.Pause(t.Context(), m, driver.KeepMemory)
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(dir, string(spec.ID), "saved", "*"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			if err := damage(f); err != nil {
				t.Fatal(err)
			}
		}
		if m, err := d.Resume(t.Context(), spec, saved); err == nil {
			m.Stop(t.Context())
			t.Error("a damaged save was resumed")
		} else {
			t.Log(fmt.Sprintf("%.300s", err))
		}
		if err := d.Discard(t.Context(), spec.ID); err != nil {
			t.Fatal(err)
		}
	}
	nothingLeft(t, d, dir, before)
}

func TestResizeWhileRunning(t *testing.T) {
	d := newDriver(t, t.TempDir())
	b := create(t, d, newSpec(t, func(l *sandbox.Limits) { l.MemoryBytes = 256 << 20; l.CPUMilli = 2000 }))
	hold := `python3 -c "
b = bytearray(400 << 20)
for i in range(0, len(b), 4096): b[i] = 1
print('held')"`
	if out, exit := b.sh(t, "user", hold); exit.Code == 0 {
		t.Fatalf("400 MiB fitted into 256: %s", out)
	}
	l := sandbox.DefaultLimits()
	l.MemoryBytes, l.CPUMilli = 1<<30, 2000
	if err := d.Resize(t.Context(), b.Machine, l); err != nil {
		t.Fatal(err)
	}
	b.mustSh(t, "user", hold)
	if kb := b.mustSh(t, "user", "awk '/MemTotal/{print $2}' /proc/meminfo"); kb != "1048576" {
		t.Errorf("MemTotal is %s kB after growing to 1 GiB", kb)
	}
	shm := func(want string) {
		t.Helper()
		if kb := b.mustSh(t, "user", "df -k --output=size /dev/shm | tail -n 1 | tr -d ' '"); kb != want {
			t.Errorf("/dev/shm has %s kB, want %s: a quarter of the memory", kb, want)
		}
	}
	shm("262140")
	b.mustSh(t, "user", "head -c 100M /dev/zero > /dev/shm/x")
	l.CPUMilli = 100
	if err := d.Resize(t.Context(), b.Machine, l); err != nil {
		t.Fatal(err)
	}
	b.mustSh(t, "user", "timeout 2 sh -c 'while :; do :; done' || true")
	if throttled(t, d, b.ID()) == 0 {
		t.Error("the smaller share of the processor does not hold")
	}
	l.MemoryBytes, l.CPUMilli = 128<<20, 2000
	if err := d.Resize(t.Context(), b.Machine, l); err != nil {
		t.Fatal(err)
	}
	if out, exit := b.sh(t, "user", hold); exit.Code == 0 {
		t.Errorf("400 MiB fitted into 128: %s", out)
	}
	shm("32764")
	if out, exit := b.sh(t, "user", "echo more > /dev/shm/y"); exit.Code == 0 {
		t.Errorf("what is beyond its size took more: %s", out)
	}
	b.mustSh(t, "user", "rm /dev/shm/x && echo more > /dev/shm/y")
}

// filler is a line that prints so many MiB of which no page is like its neighbours. It
// costs a tenth of as many from /dev/urandom.
func filler(mib int) string {
	return fmt.Sprintf("head -c 4M /dev/urandom > /tmp/filler && for i in $(seq %d); do cat /tmp/filler; done | head -c %dM", (mib+3)/4, mib)
}
