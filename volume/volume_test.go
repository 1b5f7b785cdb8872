package volume

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/loopfs"
	"github.com/berth-dev/berth/sandbox"
)

// opened is a store with one volume of 16 MiB.
func opened(t *testing.T) (*Store, sandbox.ID) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: volumes are file systems, which only root mounts")
	}
	s, err := Open(filepath.Join(t.TempDir(), "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	id := sandbox.NewID()
	if err := s.Make(t.Context(), id, sandbox.MinVolume); err != nil {
		t.Fatalf("%v (%s)", err, sandbox.HintOf(err))
	}
	t.Cleanup(func() {
		if err := s.Remove(context.Background(), id); err != nil {
			t.Error(err)
		}
		if left, _ := os.ReadDir(s.dir); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
	return s, id
}

func wantKind(t *testing.T, what string, err error, kind sandbox.Kind) {
	t.Helper()
	if sandbox.KindOf(err) != kind || err == nil {
		t.Errorf("%s: %v, want %s", what, err, kind)
	}
}

func TestContent(t *testing.T) {
	s, id := opened(t)
	ctx := t.Context()
	none := sandbox.VolumeAttributes{}
	if e, err := s.Write(ctx, id, "a.txt", none, false, strings.NewReader("one")); err != nil || e.Path != "/a.txt" || e.Size != 3 || e.UID != ownerID || e.Mode != 0o644 || e.Type != sandbox.TypeFile {
		t.Errorf("write: %+v, %v", e, err)
	}
	_, err := s.Write(ctx, id, "/a.txt", none, false, strings.NewReader("two"))
	wantKind(t, "write what is there", err, sandbox.Conflict)
	_, err = s.Write(ctx, id, "/no/b", none, false, strings.NewReader(""))
	wantKind(t, "write where no folder is", err, sandbox.NotFound)
	mode, root := uint32(0o600), uint32(0)
	if e, err := s.Write(ctx, id, "/deep/er/b", sandbox.VolumeAttributes{UID: &root, Mode: &mode}, true, strings.NewReader("b")); err != nil || e.UID != 0 || e.GID != ownerID || e.Mode != 0o600 {
		t.Errorf("write with attributes: %+v, %v", e, err)
	}
	if _, err := s.Write(ctx, id, "a.txt", none, true, strings.NewReader("3")); err != nil {
		t.Error(err)
	}
	body, e, err := s.Read(ctx, id, "/x/../a.txt")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(body); string(b) != "3" || err != nil || e.Size != 1 {
		t.Errorf("read %q, %v, %v", b, err, e)
	}
	body.Close()
	_, err = s.MakeDir(ctx, id, "/deep", none, false)
	wantKind(t, "make what is there", err, sandbox.Conflict)
	if e, err := s.MakeDir(ctx, id, "/deep/x/y", none, true); err != nil || e.Type != sandbox.TypeDir || e.Mode != 0o755 || e.UID != ownerID {
		t.Errorf("make: %+v, %v", e, err)
	}
	var paths []string
	all, err := s.List(ctx, id, "/", 3)
	for _, e := range all {
		paths = append(paths, e.Path)
	}
	if got := strings.Join(paths, " "); err != nil || got != "/a.txt /deep /deep/er /deep/er/b /deep/x /deep/x/y" {
		t.Errorf("list %s, %v", got, err)
	}
	if err := s.RemoveEntry(ctx, id, "/deep"); err != nil {
		t.Error(err)
	}
	wantKind(t, "remove again", s.RemoveEntry(ctx, id, "/deep"), sandbox.NotFound)
	wantKind(t, "remove all", s.RemoveEntry(ctx, id, "/deep/.."), sandbox.Invalid)
}

// TestHostileContent: what a sandbox puts into a volume leads nowhere and holds
// nobody up.
func TestHostileContent(t *testing.T) {
	s, id := opened(t)
	ctx := t.Context()
	dir, err := s.Folder(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"out": "/etc/passwd", "up": "../../..", "loop": "loop", "in": "file"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"out", "up/etc/passwd", "pipe", "/", "a\x00b", "loop"} {
		if _, _, err := s.Read(ctx, id, p); err == nil || sandbox.KindOf(err) == sandbox.Internal {
			t.Errorf("read %q: %v", p, err)
		}
		if _, err := s.Write(ctx, id, p, sandbox.VolumeAttributes{}, true, strings.NewReader("x")); err == nil || sandbox.KindOf(err) == sandbox.Internal {
			t.Errorf("write %q: %v", p, err)
		}
	}
	if e, err := s.Stat(ctx, id, "out"); err != nil || e.Type != sandbox.TypeSymlink || e.Target != "/etc/passwd" {
		t.Errorf("stat of a link: %+v, %v", e, err)
	}
	body, _, err := s.Read(ctx, id, "in")
	if err != nil {
		t.Fatal(err)
	}
	body.Close()
	if _, err := s.List(ctx, id, "/", 5); err != nil {
		t.Error(err)
	}
	_, err = s.Write(ctx, id, "large", sandbox.VolumeAttributes{}, false, io.LimitReader(zeros{}, 2*sandbox.MinVolume))
	wantKind(t, "more than fits", err, sandbox.Exhausted)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return copy(p, bytes.Repeat([]byte{1}, len(p))), nil }

func TestLife(t *testing.T) {
	s, id := opened(t)
	ctx := t.Context()
	wantKind(t, "make it again", s.Make(ctx, id, sandbox.MinVolume), sandbox.Conflict)
	_, err := s.Folder(ctx, sandbox.NewID())
	wantKind(t, "one that is not there", err, sandbox.NotFound)
	if _, err := s.Write(ctx, id, "kept", sandbox.VolumeAttributes{}, false, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(s.folder(id))
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, "remove one in use", s.Remove(ctx, id), sandbox.Conflict)
	held.Close()
	// After a restart of the host it is not mounted.
	if err := unix.Unmount(s.folder(id), 0); err != nil {
		t.Fatal(err)
	}
	again, err := Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	if e, err := again.Stat(ctx, id, "kept"); err != nil || e.Size != 1 {
		t.Errorf("after a restart: %+v, %v", e, err)
	}
	half := filepath.Join(s.dir, string(sandbox.NewID())+newSuffix)
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if there, err := again.Tidy(); err != nil || len(there) != 1 || !there[id] {
		t.Errorf("there are %v, %v", there, err)
	}
	if _, err := os.Stat(half); err == nil {
		t.Error("a half was kept")
	}
	if err := again.Remove(ctx, id); err != nil {
		t.Error(err)
	}
	if err := again.Remove(ctx, id); err != nil {
		t.Errorf("remove again: %v", err)
	}
}

// TestClose unmounts what nobody uses, also what a server that was killed has left.
func TestClose(t *testing.T) {
	killed, id := opened(t)
	ctx := t.Context()
	s, err := Open(killed.dir)
	if err != nil {
		t.Fatal(err)
	}
	held, err := os.Open(s.folder(id))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close while somebody looks at a volume: %v", err)
	}
	if is, err := loopfs.Mounted(s.folder(id)); err != nil || !is {
		t.Errorf("what is in use was unmounted: %v, %v", is, err)
	}
	held.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.folder(id)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is mounted yet: %v", err)
	}
	_, err = s.Folder(ctx, id)
	wantKind(t, "mount in a closed store", err, sandbox.Unavailable)
	if e, err := killed.Stat(ctx, id, "/"); err != nil || e.Type != sandbox.TypeDir {
		t.Errorf("what is there is mounted again: %+v, %v", e, err)
	}
}

// TestMakeOnAFullDisk: with less room than a volume needs it is made whole or not at
// all, and who asked is told what is missing.
func TestMakeOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: mounting a small disk needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	s, err := Open(filepath.Join(dir, "volumes"))
	if err != nil {
		t.Fatal(err)
	}
	made, refused := 0, 0
	for left := int64(0); left <= 4<<20; left = max(2*left, 4<<10) {
		if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 4<<20-left), 0o600); left > 0 && err != nil {
			t.Fatal(err)
		}
		id := sandbox.NewID()
		if err := s.Make(t.Context(), id, sandbox.MinVolume); err == nil {
			made++
			if err := s.Remove(t.Context(), id); err != nil {
				t.Errorf("with %d KiB left: %v", left>>10, err)
			}
		} else if refused++; sandbox.KindOf(err) != sandbox.Exhausted || !strings.Contains(sandbox.HintOf(err), "data directory") {
			t.Errorf("with %d KiB left: %v (%v, %q)", left>>10, err, sandbox.KindOf(err), sandbox.HintOf(err))
		}
		if has, err := os.ReadDir(s.dir); err != nil || len(has) > 0 {
			t.Errorf("with %d KiB left: %v are there, %v", left>>10, has, err)
		}
		os.Remove(filepath.Join(dir, "fill"))
	}
	if made == 0 || refused == 0 {
		t.Errorf("%d were made, %d refused", made, refused)
	}
}
