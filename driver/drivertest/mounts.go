package drivertest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// mounted makes a bed with a folder of the host at /data. A driver that mounts none
// must say so.
func mounted(t *testing.T, h Harness, dir string, readOnly bool) (*bed, bool) {
	t.Helper()
	spec := h.Spec()
	spec.Mounts = []driver.Mount{{Source: dir, Target: "/data", ReadOnly: readOnly}}
	m, err := h.Driver.Create(within(t), spec)
	if sandbox.KindOf(err) == sandbox.Unsupported {
		t.Logf("LOUDLY: the driver %s mounts no folders: %v", h.Driver.Class(), err)
		return nil, false
	}
	if err != nil {
		t.Fatalf("create: %v (%s)", err, sandbox.HintOf(err))
	}
	b := &bed{t: t, h: h, d: h.Driver, spec: spec}
	t.Cleanup(b.remove)
	b.use(m)
	return b, true
}

// testMounts: a folder that machines share is theirs and the host's at the same
// time, and is no part of what is put aside and copied.
func testMounts(t *testing.T, h Harness) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "given"), []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	b, ok := mounted(t, h, dir, false)
	if !ok {
		return
	}
	if got := output(t, b.guest, "cat /data/given; echo inside > /data/made; mkdir /data/folder; ln -s /etc/hostname /data/link"); got != "of the host" {
		t.Errorf("what the host gave reads %q", got)
	}
	host(t, dir, "made", "inside\n")
	other, _ := mounted(t, h, dir, true)
	if got := output(t, other.guest, "cat /data/made"); got != "inside\n" {
		t.Errorf("another machine reads %q", got)
	}
	if got := output(t, other.guest, "echo no 2>/dev/null > /data/made || echo refused"); got != "refused\n" {
		t.Errorf("to write where nothing may be written gave %q", got)
	}
	if got := output(t, other.guest, "cat /data/link; hostname"); got == "" {
		t.Error("a link leads nowhere inside")
	}
	over(t, other)

	detached(t, b.guest, "sh", "-c", "exec 3>>/data/log; n=0; while :; do n=$((n+1)); echo $n >&3; sleep 0.05; done")
	grows(t, dir)
	b.resume(b.pause(driver.KeepMemory))
	grows(t, dir)
	output(t, b.guest, "echo after > /data/made")
	host(t, dir, "made", "after\n")
	for _, child := range b.forked(2) {
		output(t, child.guest, "echo $$ > /data/of-a-child; cat /data/given > /dev/null")
		if _, err := os.Stat(filepath.Join(dir, "of-a-child")); err != nil {
			t.Error(err)
		}
		over(t, child)
	}
	b.resume(b.pause(driver.KeepDisk))
	if got := output(t, b.guest, "cat /data/made"); got != "after\n" {
		t.Errorf("after a new start it reads %q", got)
	}
	over(t, b)
	host(t, dir, "given", "of the host")
}

// host checks what a file of the shared folder holds.
func host(t *testing.T, dir, name, want string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil || string(got) != want {
		t.Errorf("%s holds %q, want %q: %v", name, got, want, err)
	}
}

// grows waits until what a process writes has become more.
func grows(t *testing.T, dir string) {
	t.Helper()
	size := func() int64 {
		fi, err := os.Stat(filepath.Join(dir, "log"))
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	before := size()
	eventually(t, "the log grows", func() bool { return size() > before })
}
