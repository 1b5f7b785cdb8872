package gvisor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// storeDriver opens a driver whose folder lies on a store.
func storeDriver(t *testing.T, dir string, size int64) *gvisor.Driver {
	t.Helper()
	d, err := gvisor.New(gvisor.Config{Dir: dir, Guest: guestBinary, Store: size})
	if err != nil {
		t.Fatal(err, sandbox.HintOf(err))
	}
	return d
}

// TestStore: a fork on a store shares what was written, the store outlives drivers
// and mounts, grows, and is full like a disk.
func TestStore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: mounting needs root")
	}
	if b, _ := os.ReadFile("/proc/filesystems"); !strings.Contains(string(b), "xfs") {
		t.Skip("SKIPPED LOUDLY: this kernel has no XFS")
	}
	dir := filepath.Join(t.TempDir(), "machines")
	const size = 768 << 20
	d := storeDriver(t, dir, size)
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	b := create(t, d, newSpec(t))
	b.mustSh(t, "user", filler(200)+" > /workspace/big; md5sum /workspace/big > /workspace/sum")
	free := freeOn(t, dir)
	specs := []driver.Spec{newSpec(t), newSpec(t), newSpec(t)}
	f, err := d.Fork(t.Context(), b.Machine, specs)
	if err != nil {
		t.Fatal(err)
	}
	var kids []box
	for _, one := range f.Each {
		if one.Err != nil {
			t.Fatal(one.Err)
		}
		kids = append(kids, client(t, one.Machine))
	}
	if took := free - freeOn(t, dir); took > 64<<20 {
		t.Errorf("three copies of 200 MiB take %d MiB", took>>20)
	}
	for _, k := range kids {
		k.mustSh(t, "user", "md5sum -c /workspace/sum && echo mine >> /workspace/big && ! md5sum -c /workspace/sum 2>/dev/null")
	}
	b.mustSh(t, "user", "md5sum -c /workspace/sum")

	// Full, it is ENOSPC inside and nothing else.
	out, exit := b.sh(t, "user", filler(900)+" > /workspace/more")
	if exit.Code == 0 || !strings.Contains(out, "No space left on device") {
		t.Errorf("filled: %+v %q", exit, out)
	}
	b.mustSh(t, "user", "rm /workspace/more; md5sum -c /workspace/sum")
	kids[0].mustSh(t, "user", "echo after > /workspace/after && sync")
	for _, k := range kids {
		if err := k.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}

	// As after a restart of the host: what was put aside is there again, in a store
	// that has grown.
	spec := newSpec(t)
	spec.ID = b.ID()
	saved, err := d.Pause(t.Context(), b.Machine, driver.KeepMemory)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	gone(t, dir)
	d = storeDriver(t, dir, 2*size)
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || int64(st.Blocks)*st.Bsize < size*3/2 {
		t.Errorf("it has not grown: %d MiB, %v", int64(st.Blocks)*st.Bsize>>20, err)
	}
	m, err := d.Resume(t.Context(), spec, saved)
	if err != nil {
		t.Fatal(err)
	}
	client(t, m).mustSh(t, "user", "md5sum -c /workspace/sum")
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestStoreRefusals: what cannot have a store says why.
func TestStoreRefusals(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "machines")
	if err := os.MkdirAll(filepath.Join(dir, string(sandbox.NewID())), 0o700); err != nil {
		t.Fatal(err)
	}
	for size, kind := range map[int64]sandbox.Kind{1 << 20: sandbox.Invalid, 1 << 30: sandbox.Conflict} {
		_, err := gvisor.New(gvisor.Config{Dir: dir, Store: size})
		if sandbox.KindOf(err) != kind || sandbox.HintOf(err) == "" {
			t.Errorf("a store of %d: %v (%s), want %s", size, err, sandbox.HintOf(err), kind)
		}
	}
	entries := must(t, func() ([]os.DirEntry, error) { return os.ReadDir(filepath.Dir(dir)) })
	if len(entries) != 1 {
		t.Errorf("left: %v", entries)
	}
}

// gone waits until nobody has a mount any more: engines that start, those of other
// tests too, have all of the host's until they are in a root of their own.
func gone(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		tables, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
		holders := slices.DeleteFunc(tables, func(table string) bool {
			b, err := os.ReadFile(table)
			return err != nil || !strings.Contains(string(b), dir+" ")
		})
		if len(holders) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is mounted yet in %q", dir, holders)
		}
	}
}

func freeOn(t *testing.T, dir string) int64 {
	t.Helper()
	unix.Sync()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Bfree) * st.Bsize
}
