package engine_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

// gatedBlobs opens what is large only while its gate is open.
type gatedBlobs struct {
	blob.Store
	mu   sync.Mutex
	gate chan struct{} // closed: it is open
}

func (b *gatedBlobs) shut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gate = make(chan struct{})
}

func (b *gatedBlobs) open() { close(b.gate) }

func (b *gatedBlobs) Open(ctx context.Context, d blob.Digest, offset int64) (io.ReadCloser, error) {
	info, err := b.Stat(ctx, d)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	gate := b.gate
	b.mu.Unlock()
	if info.Size > 64<<10 {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return b.Store.Open(ctx, d, offset)
}

// lateHouse is a house with a snapshot, "then", whose memory comes when the gate is
// open. The folder that it lay ready in is gone.
func lateHouse(t *testing.T) (h *house, b *gatedBlobs, change func(*engine.Config)) {
	b = &gatedBlobs{Store: &memory.Store{}}
	b.shut()
	b.open()
	dir := t.TempDir()
	change = func(c *engine.Config) {
		store, err := snapshot.New(snapshot.Config{Blobs: b, Late: 1})
		if err != nil {
			t.Fatal(err)
		}
		shelf, err := snapshot.OpenShelf(store, dir, "", 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { shelf.Close() })
		c.Archive = shelf
	}
	h = newHouse(t, change)
	box := h.create(t, sandbox.CreateRequest{Name: "box"})
	var noise strings.Builder
	for i := range 40_000 {
		noise.WriteString(time.Unix(int64(i)*7919, int64(i*i)).UTC().String())
	}
	h.world.put(box.ID, content{noise.String(), "disk then"})
	snap(t, h, "box", sandbox.SnapshotRequest{Name: "then"})
	if err := h.Remove(operator(t), "box"); err != nil {
		t.Fatal(err)
	}
	b.shut()
	return h, b, change
}

// lacking are the keys of those that have not all of their memory.
func (h *house) lacking(t *testing.T) int {
	t.Helper()
	entries, err := h.records.List(t.Context(), "lacking/", "", 0)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func (h *house) awaitLacking(t *testing.T, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); h.lacking(t) != n; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d lack something, want %d", h.lacking(t), n)
		}
	}
}

// TestSandboxesBeginBeforeTheirMemoryIsThere: a sandbox runs while its memory is still
// to come; what it comes from stays stored when its snapshot is removed; the next
// process goes on with it.
func TestSandboxesBeginBeforeTheirMemoryIsThere(t *testing.T) {
	h, b, change := lateHouse(t)
	s := h.create(t, sandbox.CreateRequest{Name: "child", Snapshot: "then"})
	if s.State != sandbox.Running || h.lacking(t) != 1 {
		t.Fatalf("%+v, %d lack something", s, h.lacking(t))
	}
	if err := h.RemoveSnapshot(operator(t), "then"); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Collect(operator(t), false); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if h.lacking(t) != 1 {
		t.Error("the end of the server took it off the record")
	}
	h.world.forgetFeeds()
	h.open(t, change)
	if _, err := h.Collect(operator(t), false); err != nil {
		t.Fatal(err)
	}
	b.open()
	h.awaitLacking(t, 0)
	if got, err := h.Get(operator(t), "child"); err != nil || got.State != sandbox.Running {
		t.Errorf("%+v, %v", got, err)
	}
	if err := h.Remove(operator(t), "child"); err != nil {
		t.Fatal(err)
	}
	h.awaitNoBlobs(t, b)
}

// awaitNoBlobs waits until nothing is stored.
func (h *house) awaitNoBlobs(t *testing.T, b blob.Store) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := h.Collect(operator(t), false); err != nil {
			t.Fatal(err)
		}
		left := 0
		if err := b.List(t.Context(), func(blob.Info) error { left++; return nil }); err != nil {
			t.Fatal(err)
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d blobs are left", left)
		}
	}
}

// TestWhatLacksSomethingGoesWithItsSandbox: nothing is kept for one that has gone,
// whether a server was there or not.
func TestWhatLacksSomethingGoesWithItsSandbox(t *testing.T) {
	h, b, change := lateHouse(t)
	defer b.open()
	h.create(t, sandbox.CreateRequest{Name: "one", Snapshot: "then"})
	two := h.create(t, sandbox.CreateRequest{Name: "two", Snapshot: "then"})
	h.world.set("restore", sandbox.Errorf("restore", sandbox.Internal, "broken"))
	if _, err := h.Create(operator(t), sandbox.CreateRequest{Snapshot: "then"}); err == nil {
		t.Fatal("made of what is broken")
	}
	h.world.set("restore", nil)
	h.awaitLacking(t, 2)
	if err := h.Remove(operator(t), "one"); err != nil {
		t.Fatal(err)
	}
	h.awaitLacking(t, 1)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h.world.forgetFeeds()
	h.world.forget(two.ID)
	h.open(t, change)
	h.awaitLacking(t, 0)
}

// TestFeedingIsTriedAgain: what cannot be fed now is fed later.
func TestFeedingIsTriedAgain(t *testing.T) {
	h, b, change := lateHouse(t)
	h.create(t, sandbox.CreateRequest{Name: "child", Snapshot: "then"})
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h.world.forgetFeeds()
	h.world.set("refeed", sandbox.Errorf("feed", sandbox.Unavailable, "not now"))
	h.open(t, change)
	b.open()
	if h.lacking(t) != 1 {
		t.Error("it lacks nothing, though nobody feeds it")
	}
	h.world.set("refeed", nil)
	h.awaitLacking(t, 0)
}
