package snapshot_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

// slowBlobs opens no blob while it is on, until the caller leaves.
type slowBlobs struct {
	blob.Store
	on    atomic.Bool
	once  sync.Once
	began chan struct{}
}

func (b *slowBlobs) Open(ctx context.Context, d blob.Digest, offset int64) (io.ReadCloser, error) {
	if b.on.Load() {
		b.once.Do(func() { close(b.began) })
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return b.Store.Open(ctx, d, offset)
}

func openShelf(t testing.TB, s *snapshot.Store, dir string, budget int64) *snapshot.Shelf {
	t.Helper()
	shelf, err := snapshot.OpenShelf(s, dir, "boot 1", budget)
	if err != nil {
		t.Fatal(err)
	}
	return shelf
}

// keep fills a folder with so many chunks of noise and keeps it.
func keep(t *testing.T, s *snapshot.Shelf, seed uint64, chunks int) blob.Digest {
	t.Helper()
	dir, err := s.Fresh()
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "pages"), int64(chunks)*chunk, part{0, noise(seed, chunks*chunk)})
	saved, err := s.Keep(t.Context(), dir, about)
	if err != nil {
		t.Fatal(err)
	}
	saved.Release()
	return saved.Digest
}

func readyCount(t *testing.T, dir string) int {
	t.Helper()
	work, err := os.ReadDir(filepath.Join(dir, "work"))
	if err != nil || len(work) > 0 {
		t.Errorf("left at work: %v, %v", work, err)
	}
	ready, err := os.ReadDir(filepath.Join(dir, "ready"))
	if err != nil {
		t.Fatal(err)
	}
	return len(ready)
}

func TestShelfKeepsWithinItsBudget(t *testing.T) {
	store, _ := onDisk(t, t.TempDir())
	dir := t.TempDir()
	s := openShelf(t, store, dir, 5*chunk)
	first, second, third := keep(t, s, 1, 2), keep(t, s, 2, 2), keep(t, s, 3, 2)
	if n := readyCount(t, dir); n != 2 {
		t.Errorf("%d folders of 2 chunks lie in the room of 5", n)
	}
	path, release, err := s.Take(t.Context(), first) // which is loaded again
	if err != nil {
		t.Fatal(err)
	}
	if got := describe(t, path); got != describe(t, load(t, store, first)) {
		t.Errorf("what was taken is\n%s", got)
	}
	keep(t, s, 4, 4)
	if _, err := os.Stat(path); err != nil {
		t.Errorf("what is in use was removed: %v", err)
	}
	release()
	release()
	if err := s.Forget(first); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("what was forgotten is there")
	}
	_, hold, err := s.Take(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Forget(second); err != nil {
		t.Fatal(err)
	}
	hold()
	_, release, err = s.Take(t.Context(), third)
	if err != nil {
		t.Fatal(err)
	}
	release()

	if err := os.MkdirAll(filepath.Join(dir, "ready", first.Hex()+".part"), 0o700); err != nil { // a load that was cut short
		t.Fatal(err)
	}
	again := openShelf(t, store, dir, 0)
	if n := readyCount(t, dir); n != 0 {
		t.Errorf("%d folders lie ready without a budget", n)
	}
	_, release, err = again.Take(t.Context(), third)
	if err != nil {
		t.Fatal(err)
	}
	if release(); readyCount(t, dir) != 0 {
		t.Error("it stays without a budget")
	}
}

// TestShelfLoadsOnce lets many take the same at once.
func TestShelfLoadsOnce(t *testing.T) {
	_, b := onDisk(t, t.TempDir())
	f := &failing{Store: b, left: 1 << 30}
	store := newStore(t, f)
	saved := save(t, store, sample(t))
	f.left = 1000
	s := openShelf(t, store, t.TempDir(), 1<<30)
	var takers sync.WaitGroup
	for range 16 {
		takers.Go(func() {
			_, release, err := s.Take(t.Context(), saved.Digest)
			if err != nil {
				t.Error(err)
				return
			}
			release()
		})
	}
	takers.Wait()
	if calls := 1000 - f.left; calls > 12 {
		t.Errorf("the store was asked %d times", calls)
	}
}

// TestShelfOutlivesLoaders ends the load of one while another waits for it.
func TestShelfOutlivesLoaders(t *testing.T) {
	_, b := onDisk(t, t.TempDir())
	slow := &slowBlobs{Store: b, began: make(chan struct{})}
	store := newStore(t, slow)
	saved := save(t, store, sample(t))
	s := openShelf(t, store, t.TempDir(), 1<<30)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	take := func(ctx context.Context, done chan error) {
		_, release, err := s.Take(ctx, saved.Digest)
		if err == nil {
			release()
		}
		done <- err
	}
	slow.on.Store(true)
	go take(ctx, first)
	<-slow.began
	go take(t.Context(), second)
	slow.on.Store(false)
	cancel()
	wantKind(t, "the one who left", <-first, sandbox.Unavailable)
	if err := <-second; err != nil {
		t.Errorf("the one who stayed: %v", err)
	}
}

// TestShelfAfterReboot: what was not synced is not believed.
func TestShelfAfterReboot(t *testing.T) {
	store, _ := onDisk(t, t.TempDir())
	dir := t.TempDir()
	s := openShelf(t, store, dir, 1<<30)
	d := keep(t, s, 1, 2)
	if openShelf(t, store, dir, 1<<30); readyCount(t, dir) != 1 {
		t.Error("a restart of the process empties it")
	}
	pages := filepath.Join(dir, "ready", d.Hex(), "pages")
	if err := os.Truncate(pages, 100); err != nil { // as a loss of power may
		t.Fatal(err)
	}
	after, err := snapshot.OpenShelf(store, dir, "boot 2", 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if n := readyCount(t, dir); n != 0 {
		t.Errorf("%d folders lie ready after a restart of the host", n)
	}
	path, release, err := after.Take(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if info, err := os.Stat(filepath.Join(path, "pages")); err != nil || info.Size() != 2*chunk {
		t.Errorf("%v, %v", info, err)
	}
}

// countedBlobs counts the bytes that are read of it.
type countedBlobs struct {
	blob.Store
	read atomic.Int64
}

func (b *countedBlobs) Open(ctx context.Context, d blob.Digest, offset int64) (io.ReadCloser, error) {
	r, err := b.Store.Open(ctx, d, offset)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r, counter{&b.read}), r}, nil
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) { c.n.Add(int64(len(p))); return len(p), nil }

// TestOnlyWhatIsNotNearIsFetched: of what a ready folder holds too nothing is fetched, and
// what was changed there meanwhile is not believed.
func TestOnlyWhatIsNotNearIsFetched(t *testing.T) {
	blobs := &countedBlobs{Store: &memory.Store{}}
	store := newStore(t, blobs)
	dir := t.TempDir()
	const chunks = 8
	whole := noise(1, chunks*chunk)
	first := keepAll(t, openShelf(t, store, t.TempDir(), 1<<30), whole)
	changed := slices.Clone(whole)
	copy(changed[3*chunk:], noise(2, chunk))
	second := keepAll(t, openShelf(t, store, t.TempDir(), 1<<30), changed)

	shelf := openShelf(t, store, dir, 1<<30)
	take := func(d blob.Digest, want []byte) int64 {
		t.Helper()
		before := blobs.read.Load()
		folder, release, err := shelf.Take(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		got, err := os.ReadFile(filepath.Join(folder, "pages"))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("another content, %v", err)
		}
		return blobs.read.Load() - before
	}
	if n := take(first, whole); n < chunks*chunk {
		t.Fatalf("%d bytes were fetched of %d", n, chunks*chunk)
	}
	if n := take(second, changed); n < chunk || n > chunk+chunk/2 {
		t.Errorf("%d bytes were fetched for one chunk of %d bytes", n, chunk)
	}
	if err := shelf.Forget(second); err != nil {
		t.Fatal(err)
	}
	// A disk that gives other bytes than it was given.
	path := filepath.Join(dir, "ready", first.Hex(), "pages")
	if err := os.WriteFile(path, noise(3, chunks*chunk), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := take(second, changed); n < chunks*chunk {
		t.Errorf("%d bytes were fetched, and the rest was believed", n)
	}
}

// keepAll keeps a folder with one file.
func keepAll(t testing.TB, s *snapshot.Shelf, content []byte) blob.Digest {
	t.Helper()
	dir, err := s.Fresh()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pages"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	saved, err := s.Keep(t.Context(), dir, about)
	if err != nil {
		t.Fatal(err)
	}
	saved.Release()
	return saved.Digest
}
