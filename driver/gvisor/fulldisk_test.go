package gvisor_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// TestAFullDiskOfTheHost puts the driver on a disk that is smaller than what its
// sandboxes may write.
func TestAFullDiskOfTheHost(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: mounting a small disk needs root")
	}
	disk := t.TempDir()
	if err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=100m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	d := newDriver(t, filepath.Join(disk, "machines"))
	b := create(t, d, newSpec(t))

	out, exit := b.sh(t, "user", "dd if=/dev/zero of=/workspace/fill bs=1M count=300")
	if exit.Code == 0 {
		t.Errorf("300 MiB went to a disk of 100: %s", out)
	}
	t.Logf("a full disk inside: exit %d: %s", exit.Code, out)
	// The sandbox lives and, once there is room, works on.
	b.mustSh(t, "user", "rm /workspace/fill")
	b.mustSh(t, "user", "dd if=/dev/zero of=/workspace/less bs=1M count=10 && echo ok > /workspace/small && cat /workspace/small")

	if err := os.WriteFile(filepath.Join(disk, "fill"), make([]byte, 90<<20), 0o600); err != nil && !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(disk, "rest"), make([]byte, 90<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	m, err := d.Create(t.Context(), newSpec(t))
	if err == nil {
		// Nothing needed room: then it must work.
		if err := m.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	} else if k := sandbox.KindOf(err); k != sandbox.Exhausted {
		t.Errorf("a create on a full disk gives %q: %v", k, err)
	}
}
