package snapshot_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

// heldBlobs opens large blobs only as they are let.
type heldBlobs struct {
	blob.Store

	mu    sync.Mutex
	held  bool
	asked []blob.Digest // large blobs that were opened so far
	more  chan struct{} // closed and replaced when that has grown or held has changed
}

func (b *heldBlobs) Open(ctx context.Context, d blob.Digest, offset int64) (io.ReadCloser, error) {
	info, err := b.Stat(ctx, d)
	if err != nil || info.Size < chunk/2 {
		return b.Store.Open(ctx, d, offset)
	}
	b.mu.Lock()
	b.asked = append(b.asked, d)
	b.tell()
	for b.held {
		more := b.more
		b.mu.Unlock()
		select {
		case <-more:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		b.mu.Lock()
	}
	b.mu.Unlock()
	return b.Store.Open(ctx, d, offset)
}

func (b *heldBlobs) tell() { close(b.more); b.more = make(chan struct{}) }

func (b *heldBlobs) hold(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = on
	b.tell()
}

// await returns the large blobs that were opened, once they are so many.
func (b *heldBlobs) await(t *testing.T, n int) []blob.Digest {
	t.Helper()
	late := time.After(time.Minute)
	for {
		b.mu.Lock()
		asked, more := slices.Clone(b.asked), b.more
		b.mu.Unlock()
		if len(asked) >= n {
			return asked
		}
		select {
		case <-more:
		case <-late:
			t.Fatalf("%d blobs were opened, not %d", len(asked), n)
		}
	}
}

func newHeld() *heldBlobs {
	return &heldBlobs{Store: &memory.Store{}, held: true, more: make(chan struct{})}
}

// keepLate keeps a folder with a small file and a large one, "deep/late", which has a
// hole in it and one behind it.
func keepLate(t *testing.T, s *snapshot.Shelf, chunks int) (blob.Digest, []byte) {
	t.Helper()
	dir, err := s.Fresh()
	if err != nil {
		t.Fatal(err)
	}
	whole := make([]byte, (chunks+3)*chunk)
	copy(whole, noise(3, chunk))
	copy(whole[2*chunk:], noise(4, (chunks-1)*chunk))
	write(t, filepath.Join(dir, "small"), 5, part{0, []byte("small")})
	write(t, filepath.Join(dir, "deep", "late"), int64(len(whole)), part{0, whole[:chunk]}, part{2 * chunk, whole[2*chunk : (chunks+1)*chunk]})
	saved, err := s.Keep(t.Context(), dir, about)
	if err != nil {
		t.Fatal(err)
	}
	saved.Release()
	return saved.Digest, whole
}

// drain follows a filling to its end and returns what it said came.
func drain(t *testing.T, w *snapshot.Filling, size int) []bool {
	t.Helper()
	came := make([]bool, size)
	for i := 0; ; i++ {
		offset, n, err := w.Next(t.Context(), i)
		if err == io.EOF {
			return came
		}
		if err != nil {
			t.Fatal(err)
		}
		for k := offset; k < offset+n; k++ {
			if came[k] {
				t.Fatalf("byte %d came twice", k)
			}
			came[k] = true
		}
	}
}

const lateChunks = 20

func TestWhatIsWantedComesFirst(t *testing.T) {
	b := newHeld()
	b.held = false
	dir := t.TempDir()
	store := newStore(t, b)
	d, whole := keepLate(t, openShelf(t, store, t.TempDir(), 1<<30), lateChunks)

	m, err := store.Manifest(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	chunks := m.Files[len(m.Files)-1].Chunks // the second of them lies at 2*chunk
	b.hold(true)
	shelf := openShelf(t, store, dir, 1<<30)
	path, w, release, err := shelf.TakeEarly(t.Context(), d, "deep/late")
	if err != nil || w == nil {
		t.Fatalf("take early: %v, %v", w, err)
	}
	defer release()
	if got, err := os.ReadFile(filepath.Join(path, "small")); err != nil || string(got) != "small" {
		t.Errorf("the small file: %q, %v", got, err)
	}
	if info, err := os.Stat(filepath.Join(path, "deep/late")); err != nil || info.Size() != int64(len(whole)) {
		t.Errorf("the late file: %v, %v", info, err)
	}
	// The holes are there; then what is asked for comes before what nobody wants.
	for i, want := range []int64{chunk, 2 * chunk} {
		if _, n, err := w.Next(t.Context(), i); err != nil || n != want {
			t.Fatalf("hole %d: %d bytes, %v", i, n, err)
		}
	}
	w.Want(-5, 3)
	w.Want(int64(len(whole))+chunk, chunk)
	w.Want(9*chunk+17, chunk)
	// Two are on their way that nobody asked for, and no more.
	asked := b.await(t, 4)
	for _, k := range []int{8, 9} {
		if !slices.Contains(asked, blob.DigestOf(chunks[k].Blob)) {
			t.Errorf("chunk %d was wanted, and not fetched first", k)
		}
	}
	b.hold(false)
	w.Want(15*chunk, 1)
	came := 0
	for i := 2; ; i++ {
		offset, n, err := w.Next(t.Context(), i)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, n)
		f, err := os.Open(filepath.Join(path, "deep/late"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.ReadAt(got, offset); err != nil || !bytes.Equal(got, whole[offset:offset+n]) {
			t.Fatalf("what came at %d is not there: %v", offset, err)
		}
		f.Close()
		came++
	}
	if came != lateChunks {
		t.Errorf("%d chunks came", came)
	}
	dir2, again, release2, err := shelf.TakeEarly(t.Context(), d, "deep/late")
	if err != nil || dir2 != path || again != nil && drain(t, again, len(whole)) == nil {
		t.Fatalf("take again: %q, %v", dir2, err)
	}
	release2()
	if err := shelf.Close(); err != nil {
		t.Fatal(err)
	}
	if again := openShelf(t, store, dir, 1<<30); readyCount(t, dir) != 1 {
		t.Errorf("what is whole is not ready: %v", again)
	}
}

func TestTakeWaitsForWhatIsLate(t *testing.T) {
	b := newHeld()
	b.held = false
	store := newStore(t, b)
	d, whole := keepLate(t, openShelf(t, store, t.TempDir(), 1<<30), lateChunks)
	b.hold(true)
	shelf := openShelf(t, store, t.TempDir(), 1<<30)
	_, w, release, err := shelf.TakeEarly(t.Context(), d, "deep/late")
	if err != nil || w == nil {
		t.Fatal(w, err)
	}
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := shelf.Take(ctx, d); !errors.Is(err, context.Canceled) {
		t.Errorf("one who left: %v", err)
	}
	// What is removed meanwhile stays until it is there.
	if err := shelf.Forget(d); err != nil {
		t.Fatal(err)
	}
	swept, err := shelf.Sweep(t.Context(), func(context.Context) ([]blob.Digest, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("swept %d blobs", swept.Blobs)
	b.hold(false)
	path, done, err := shelf.Take(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(path, "deep/late")); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("the late file is not whole: %v", err)
	}
	done()
	if came := drain(t, w, len(whole)); len(came) != len(whole) {
		t.Error("not all came")
	}
	if err := shelf.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLateFileThatCannotBeHad(t *testing.T) {
	b := newHeld()
	b.held = false
	store := newStore(t, b)
	d, _ := keepLate(t, openShelf(t, store, t.TempDir(), 1<<30), lateChunks)
	m, err := store.Manifest(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	f := m.Files[len(m.Files)-1]
	if err := b.Remove(t.Context(), blob.DigestOf(f.Chunks[7].Blob)); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	shelf := openShelf(t, store, dir, 1<<30)
	_, w, release, err := shelf.TakeEarly(t.Context(), d, "deep/late")
	if err != nil || w == nil {
		t.Fatal(w, err)
	}
	for i := 0; err == nil; i++ {
		_, _, err = w.Next(t.Context(), i)
	}
	if sandbox.KindOf(err) != sandbox.Internal || !strings.Contains(err.Error(), "chunk 7 of deep/late") {
		t.Errorf("a chunk that is missing: %v", err)
	}
	if _, _, err := shelf.Take(t.Context(), d); sandbox.KindOf(err) != sandbox.Internal {
		t.Errorf("take what cannot be had: %v", err)
	}
	release()
	if err := shelf.Close(); err != nil {
		t.Fatal(err)
	}
	if n := readyCount(t, dir); n != 0 {
		t.Errorf("%d things lie ready", n)
	}
}

// TestFillingGoesOnInAnotherProcess: what a shelf that was closed has left is filled by
// the next one, where it is.
func TestFillingGoesOnInAnotherProcess(t *testing.T) {
	b := newHeld()
	b.held = false
	store := newStore(t, b)
	d, whole := keepLate(t, openShelf(t, store, t.TempDir(), 1<<30), lateChunks)
	b.hold(true)
	dir := t.TempDir()
	shelf := openShelf(t, store, dir, 1<<30)
	path, w, _, err := shelf.TakeEarly(t.Context(), d, "deep/late")
	if err != nil || w == nil {
		t.Fatal(w, err)
	}
	file, err := os.OpenFile(filepath.Join(path, "deep/late"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := shelf.Close(); err != nil {
		t.Fatal(err)
	}
	for i := 0; err == nil; i++ {
		_, _, err = w.Next(t.Context(), i)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a filling that was ended: %v", err)
	}
	if n := readyCount(t, dir); n > 2 {
		t.Errorf("%d things lie ready", n)
	}
	again := openShelf(t, store, dir, 1<<30)
	if n := readyCount(t, dir); n != 0 {
		t.Errorf("what was not whole lies ready: %d", n)
	}
	b.hold(false)
	lacks := [][2]int64{{0, 2 * chunk}, {5*chunk + 1, 3}}
	second, run, err := again.Refill(t.Context(), d, "deep/late", file, lacks)
	if err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context()); err != nil {
		t.Fatal(err)
	}
	drain(t, second, len(whole))
	got, err := io.ReadAll(io.NewSectionReader(file, 0, int64(len(whole))))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []int{0, 5} {
		if !bytes.Equal(got[k*chunk:][:chunk], whole[k*chunk:][:chunk]) {
			t.Errorf("chunk %d was lacking, and is not there", k)
		}
	}
	if bytes.Equal(got[8*chunk:][:chunk], whole[8*chunk:][:chunk]) {
		t.Error("chunk 8, which was not lacking, was fetched")
	}
	if _, _, err := again.Refill(t.Context(), d, "other", file, lacks); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestStoreOutOfReachForAMoment: what is out of reach is tried again.
func TestStoreOutOfReachForAMoment(t *testing.T) {
	b := &moodyBlobs{Store: &memory.Store{}, good: 1 << 30}
	store := newStore(t, b)
	d, whole := keepLate(t, openShelf(t, store, t.TempDir(), 1<<30), lateChunks)
	shelf := openShelf(t, store, t.TempDir(), 1<<30)
	b.set(3, 2)
	path, w, release, err := shelf.TakeEarly(t.Context(), d, "deep/late")
	if err != nil || w == nil {
		t.Fatal(w, err)
	}
	defer release()
	drain(t, w, len(whole))
	if got, err := os.ReadFile(filepath.Join(path, "deep/late")); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("the late file is not whole: %v", err)
	}
	if err := shelf.Close(); err != nil {
		t.Fatal(err)
	}
}

// moodyBlobs opens some blobs, then refuses some, then opens all.
type moodyBlobs struct {
	blob.Store
	mu        sync.Mutex
	good, bad int
}

func (b *moodyBlobs) set(good, bad int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.good, b.bad = good, bad
}

func (b *moodyBlobs) Open(ctx context.Context, d blob.Digest, offset int64) (io.ReadCloser, error) {
	b.mu.Lock()
	refuse := false
	switch {
	case b.good > 0:
		b.good--
	case b.bad > 0:
		b.bad--
		refuse = true
	}
	b.mu.Unlock()
	if refuse {
		return nil, sandbox.Errorf("open blob", sandbox.Unavailable, "out of reach")
	}
	return b.Store.Open(ctx, d, offset)
}
