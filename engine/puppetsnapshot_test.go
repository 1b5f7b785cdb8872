package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

var _ driver.Snapshotter = (*world)(nil)

// puppetEngine is the version that captured puppets name.
const puppetEngine = "puppets 1"

func (w *world) Capture(_ context.Context, m driver.Machine, keep driver.Keep, dir string) error {
	if err := w.failing("capture"); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := m.(*puppet)
	if w.machines[p.id] != p {
		return sandbox.Errorf("capture", sandbox.Unavailable, "the machine has ended")
	}
	return writePuppet(dir, keep, p.content)
}

func (w *world) CaptureSaved(_ context.Context, id sandbox.ID, saved []byte, dir string) error {
	if err := w.failing("capture"); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.aside[id]
	if k == nil || k.token != string(saved) {
		return sandbox.Errorf("capture", sandbox.NotFound, "nothing is aside for %q", saved)
	}
	keep := driver.KeepDisk
	if k.memory != "" {
		keep = driver.KeepMemory
	}
	return writePuppet(dir, keep, k.content)
}

func writePuppet(dir string, keep driver.Keep, c content) error {
	if keep == driver.KeepDisk {
		c.memory = ""
	}
	about := driver.About{Format: driver.AboutFormat, Class: "puppet", Engine: puppetEngine, Keep: keep,
		Limits: sandbox.DefaultLimits(), Memory: int64(len(c.memory)), Disk: int64(len(c.disk)), Taken: time.Now()}
	b, err := json.Marshal(about)
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{"memory": []byte(c.memory), "disk": []byte(c.disk), driver.AboutName: b} {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) Restore(ctx context.Context, s driver.Spec, dir string) (driver.Machine, error) {
	if w.resuming != nil {
		w.resuming <- s.ID
		select {
		case <-w.leave:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := w.failing("restore"); err != nil {
		return nil, err
	}
	memory, err := os.ReadFile(filepath.Join(dir, "memory"))
	if err != nil {
		return nil, err
	}
	disk, err := os.ReadFile(filepath.Join(dir, "disk"))
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machines[s.ID] != nil || w.aside[s.ID] != nil {
		return nil, sandbox.Errorf("restore", sandbox.Conflict, "two owners of %s", s.ID)
	}
	w.count++
	m := newPuppet(w, s, fmt.Sprintf("state of %s #%d", s.ID, w.count))
	m.content = content{string(memory), string(disk)}
	w.machines[s.ID] = m
	return m, nil
}

// Late is what of a puppet may come later.
func (w *world) Late() string { return "memory" }

func (w *world) RestoreEarly(ctx context.Context, s driver.Spec, dir string, feed driver.Feed) (driver.Machine, error) {
	m, err := w.Restore(ctx, s, dir)
	if err == nil {
		m.(*puppet).feedOn(feed)
	}
	return m, err
}

// forgetFeeds makes all machines lack what had not come yet, as the end of a process
// does.
func (w *world) forgetFeeds() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.machines {
		p.whole = nil
	}
}

// feedOn follows a feed to its end in the background.
func (p *puppet) feedOn(feed driver.Feed) {
	whole := make(chan struct{})
	p.whole = whole
	go func() {
		defer close(whole)
		for i := 0; ; i++ {
			if _, _, err := feed.Next(context.Background(), i); err != nil {
				return
			}
		}
	}()
}

func (w *world) Refeed(_ context.Context, m driver.Machine, fill driver.Fill) (<-chan struct{}, error) {
	if err := w.failing("refeed"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	p := m.(*puppet)
	if p.whole == nil {
		feed, err := fill(nowhere{}, [][2]int64{{0, 1 << 40}})
		if err != nil {
			return nil, err
		}
		p.feedOn(feed)
	}
	return p.whole, nil
}

// nowhere is a file of which nobody reads what is written.
type nowhere struct{}

func (nowhere) WriteAt(b []byte, _ int64) (int, error) { return len(b), nil }
func (nowhere) Close() error                           { return nil }

func (w *world) ReduceFrom(_ context.Context, s driver.Spec, dir string) ([]byte, error) {
	if err := w.failing("reduce"); err != nil {
		return nil, err
	}
	disk, err := os.ReadFile(filepath.Join(dir, "disk"))
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machines[s.ID] != nil || w.aside[s.ID] != nil {
		return nil, sandbox.Errorf("reduce", sandbox.Conflict, "two owners of %s", s.ID)
	}
	w.count++
	k := &kept{content: content{disk: string(disk)}, token: fmt.Sprintf("%s kept disk #%d", s.ID, w.count)}
	w.aside[s.ID] = k
	return []byte(k.token), nil
}

func (w *world) Fits(about driver.About) error {
	if about.Engine != puppetEngine {
		return &sandbox.Error{Op: "check", Kind: sandbox.Unsupported, Err: fmt.Errorf("it is of %q", about.Engine), Hint: "use that"}
	}
	return w.failing("fits")
}

func (m mortal) Capture(ctx context.Context, dm driver.Machine, keep driver.Keep, dir string) error {
	return m.fate.pass("driver capture", func() error { return m.world.Capture(ctx, dm.(mortalMachine).puppet, keep, dir) })
}

func (m mortal) CaptureSaved(ctx context.Context, id sandbox.ID, saved []byte, dir string) error {
	return m.fate.pass("driver capture saved", func() error { return m.world.CaptureSaved(ctx, id, saved, dir) })
}

func (m mortal) ReduceFrom(ctx context.Context, s driver.Spec, dir string) (left []byte, err error) {
	err = m.fate.pass("driver reduce from", func() error { left, err = m.world.ReduceFrom(ctx, s, dir); return err })
	return left, err
}

func (m mortal) RestoreEarly(ctx context.Context, s driver.Spec, dir string, feed driver.Feed) (driver.Machine, error) {
	return m.machine("driver restore early", func() (driver.Machine, error) { return m.world.RestoreEarly(ctx, s, dir, feed) })
}

func (m mortal) Refeed(ctx context.Context, dm driver.Machine, fill driver.Fill) (<-chan struct{}, error) {
	return m.world.Refeed(ctx, dm.(mortalMachine).puppet, fill)
}

func (m mortal) Restore(ctx context.Context, s driver.Spec, dir string) (driver.Machine, error) {
	return m.machine("driver restore", func() (driver.Machine, error) { return m.world.Restore(ctx, s, dir) })
}

// mortalArchive is an archive as one process sees it. Its sweeps come when they
// come, and are no steps.
type mortalArchive struct {
	engine.Archive
	fate *fate
}

func (a mortalArchive) Keep(ctx context.Context, dir string, about json.RawMessage, bases ...blob.Digest) (saved *snapshot.Saved, err error) {
	err = a.fate.pass("archive keep", func() error { saved, err = a.Archive.Keep(ctx, dir, about, bases...); return err })
	return saved, err
}

func (a mortalArchive) SaveStream(ctx context.Context, name string, r io.Reader, most int64, about json.RawMessage, bases ...blob.Digest) (saved *snapshot.Saved, err error) {
	err = a.fate.pass("archive save stream", func() error {
		saved, err = a.Archive.SaveStream(ctx, name, r, most, about, bases...)
		return err
	})
	return saved, err
}

func (a mortalArchive) Take(ctx context.Context, d blob.Digest) (dir string, release func(), err error) {
	err = a.fate.pass("archive take", func() error { dir, release, err = a.Archive.Take(ctx, d); return err })
	if err != nil {
		return "", nil, err
	}
	return dir, release, nil
}

func (a mortalArchive) TakeEarly(ctx context.Context, d blob.Digest, name string) (dir string, w *snapshot.Filling, release func(), err error) {
	err = a.fate.pass("archive take early", func() error { dir, w, release, err = a.Archive.TakeEarly(ctx, d, name); return err })
	if err != nil {
		return "", nil, nil, err
	}
	return dir, w, release, nil
}

func (a mortalArchive) Sweep(ctx context.Context, live func(context.Context) ([]blob.Digest, error)) (snapshot.Swept, error) {
	if a.fate.isDead() {
		return snapshot.Swept{}, errDead
	}
	return a.Archive.Sweep(ctx, live)
}

// shelfOf opens an archive, as a restart does.
func shelfOf(t *testing.T, b blob.Store, dir string) *snapshot.Shelf {
	t.Helper()
	store, err := snapshot.New(snapshot.Config{Blobs: b, Saves: 2, Loads: 2})
	if err != nil {
		t.Fatal(err)
	}
	shelf, err := snapshot.OpenShelf(store, dir, "boot", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return shelf
}

// keeping gives a house an archive.
func keeping(t *testing.T, b blob.Store) func(*engine.Config) {
	dir := t.TempDir()
	return func(c *engine.Config) { c.Archive = shelfOf(t, b, dir) }
}
