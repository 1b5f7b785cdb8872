package snapshot_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/sandbox"
)

// smallDisk mounts a file system of 4 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: a full disk; mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func wantFull(t *testing.T, what string, err error) {
	t.Helper()
	wantKind(t, what, err, sandbox.Exhausted)
	if sandbox.HintOf(err) == "" {
		t.Errorf("%s: no hint: %v", what, err)
	}
}

// TestFullStore fills the disk of the blobs: what fails leaves nothing but what the
// next sweep takes, and what fits is kept.
func TestFullStore(t *testing.T) {
	s, b := onDisk(t, smallDisk(t))
	large, small := t.TempDir(), t.TempDir()
	write(t, filepath.Join(large, "pages"), 8*chunk, part{0, noise(1, 8*chunk)})
	write(t, filepath.Join(small, "pages"), chunk, part{0, noise(2, chunk)})
	first := save(t, s, small)
	_, err := s.Save(t.Context(), large, about)
	wantFull(t, "save", err)
	_, err = s.SaveStream(t.Context(), "f", bytes.NewReader(noise(3, 8*chunk)), 1<<40, about)
	wantFull(t, "save stream", err)
	if _, err := s.Sweep(t.Context(), func(context.Context) ([]blob.Digest, error) { return []blob.Digest{first.Digest}, nil }); err != nil {
		t.Fatal(err)
	}
	wantBlobs(t, b, 2)
	if err := s.Verify(t.Context(), first.Digest); err != nil {
		t.Error(err)
	}
	save(t, s, small)
}

// TestFullShelf loads what the disk has no room for; what lies there unused gives
// its room up first.
func TestFullShelf(t *testing.T) {
	dir := smallDisk(t)
	store := newStore(t, &memory.Store{})
	s := openShelf(t, store, dir, 1<<30)
	keep(t, s, 1, 2)
	fits, large := t.TempDir(), t.TempDir()
	write(t, filepath.Join(fits, "pages"), 3*chunk, part{0, noise(2, 3*chunk)})
	write(t, filepath.Join(large, "pages"), 8*chunk, part{0, noise(3, 8*chunk)})
	_, release, err := s.Take(t.Context(), save(t, store, fits).Digest)
	if err != nil {
		t.Fatalf("what lay unused was not given up: %v", err)
	}
	release()
	_, _, err = s.Take(t.Context(), save(t, store, large).Digest)
	wantFull(t, "take", err)
	if n := readyCount(t, dir); n != 0 {
		t.Errorf("%d folders are left", n)
	}
}

// BenchmarkSave saves 64 MiB of which a third is zeros and a third compresses.
func BenchmarkSave(b *testing.B) {
	dir := benchFolder(b)
	b.SetBytes(64 << 20)
	for b.Loop() {
		b.StopTimer()
		s, _ := onDisk(b, b.TempDir())
		b.StartTimer()
		save(b, s, dir)
	}
}

// BenchmarkSaveAgain saves the same once more.
func BenchmarkSaveAgain(b *testing.B) {
	dir := benchFolder(b)
	s, _ := onDisk(b, b.TempDir())
	first := save(b, s, dir)
	b.SetBytes(64 << 20)
	for b.Loop() {
		save(b, s, dir, first.Digest)
	}
}

// BenchmarkLoad loads it.
func BenchmarkLoad(b *testing.B) {
	s, _ := onDisk(b, b.TempDir())
	saved := save(b, s, benchFolder(b))
	b.SetBytes(64 << 20)
	for b.Loop() {
		load(b, s, saved.Digest)
	}
}

func benchFolder(b *testing.B) string {
	dir := b.TempDir()
	text := bytes.Repeat(noise(5, 64), 21<<20/64)
	for i := range text {
		if i%64 == 0 {
			text[i] = byte(i >> 8)
		}
	}
	write(b, filepath.Join(dir, "pages"), 64<<20, part{0, noise(4, 21<<20)}, part{30 << 20, text})
	return dir
}
