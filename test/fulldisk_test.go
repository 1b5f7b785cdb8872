package test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// startOnSmallDisk starts a server on a disk of its own, which is low while less than 16 MiB of it
// are free. The templates lie elsewhere.
func startOnSmallDisk(t *testing.T, size string, flags ...string) *rig.Server {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: mounting a small disk needs root")
	}
	dir := t.TempDir()
	data, templates, config := filepath.Join(dir, "data"), filepath.Join(dir, "templates"), filepath.Join(dir, "config.toml")
	rig.Templates(t, templates)
	for _, err := range []error{
		os.WriteFile(config, []byte("[room]\nfree = \"16MiB\"\npercent = 0\n"), 0o600),
		os.Mkdir(data, 0o700),
		unix.Mount("tmpfs", data, "tmpfs", 0, "mode=0700,"+size),
		os.Symlink(templates, filepath.Join(data, "templates")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { unix.Unmount(data, unix.MNT_DETACH) })
	return rig.StartIn(t, data, append([]string{"--config", config}, flags...)...)
}

// TestAFullDataDisk puts a server on a disk that is really small, and fills it.
func TestAFullDataDisk(t *testing.T) {
	const megabyte = 1 << 20
	s := startOnSmallDisk(t, "size=64m", "--driver", "fake")
	data := s.Data
	first, err := s.Create(t.Context(), sandbox.CreateRequest{Name: "first"})
	if err != nil {
		t.Fatal(err)
	}

	fill(t, data, 10*megabyte)
	eventually(t, "the server sees that its disk is low", func() bool {
		st, err := s.Status(t.Context())
		return err == nil && st.Disk != nil && st.Disk.Low
	})
	if _, err := s.Create(t.Context(), sandbox.CreateRequest{}); sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "" {
		t.Errorf("create with 10 MiB left: %v (%s)", err, sandbox.HintOf(err))
	}
	works := func(when string) {
		t.Helper()
		p, err := s.StartProcess(t.Context(), string(first.ID), sandbox.Command{Argv: []string{"true"}})
		if err != nil {
			t.Fatalf("a command %s: %v", when, err)
		}
		if exit, err := s.WaitProcess(t.Context(), string(first.ID), p.ID); err != nil || exit.Code != 0 {
			t.Errorf("a command %s: %+v, %v", when, exit, err)
		}
	}
	works("with 10 MiB left")

	fill(t, data, 0)
	works("on a full disk")
	if _, err := s.Create(t.Context(), sandbox.CreateRequest{}); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("create on a full disk: %v", err)
	}
	gone := s.Remove(t.Context(), string(first.ID)) // may need a page of the records

	if err := os.Remove(filepath.Join(data, "fill")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "creates are taken again", func() bool {
		again, err := s.Create(t.Context(), sandbox.CreateRequest{})
		return err == nil && s.Remove(t.Context(), string(again.ID)) == nil
	})
	if gone != nil {
		t.Logf("removal on a full disk: %v", gone)
		if err := s.Remove(t.Context(), string(first.ID)); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			t.Error(err)
		}
	}
	page, err := s.List(t.Context(), sandbox.ListQuery{})
	if err != nil || len(page.Sandboxes) != 0 {
		t.Errorf("left: %+v, %v", page.Sandboxes, err)
	}
}

// fill leaves so many bytes of a disk.
func fill(t *testing.T, disk string, leave int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(disk, "fill"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 64<<10); ; {
		var st unix.Statfs_t
		if err := unix.Statfs(disk, &st); err != nil {
			t.Fatal(err)
		}
		left := int64(st.Bavail)*st.Bsize - leave
		if left <= 0 {
			return
		}
		if _, err := f.Write(block[:min(left, int64(len(block)))]); errors.Is(err, unix.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// eventually waits for what must come, and not for long on a quiet machine.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatal("never: " + what)
}
