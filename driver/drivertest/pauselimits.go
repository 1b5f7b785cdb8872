package drivertest

import (
	"context"
	"errors"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// testPauseRefusals: what no Pause gave takes nothing up, and harms nothing.
func testPauseRefusals(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	saved := b.pause(driver.KeepMemory)
	for _, bytes := range [][]byte{nil, []byte("{}"), []byte(`{"version":4711}`), []byte("\xff\x00"), saved[:len(saved)/2]} {
		_, err := b.pauser().Resume(within(t), b.spec, bytes)
		wantKind(t, "resume from unknown bytes", err, sandbox.Unsupported, sandbox.Invalid)
	}
	bad := b.spec
	bad.Limits.MemoryBytes = -1
	_, err := b.pauser().Resume(within(t), bad, saved)
	wantKind(t, "resume with bad limits", err, sandbox.Invalid)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.pauser().Resume(ended, b.spec, saved); !errors.Is(err, context.Canceled) {
		t.Errorf("resume in an ended context: %v", err)
	}
	_, err = b.d.Create(within(t), b.spec)
	wantKind(t, "create with an id that is aside", err, sandbox.Conflict)
	b.resume(saved)
	output(t, b.guest, "true")
	b.end()
}

// testPauseDead: what has ended cannot be put aside.
func testPauseDead(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	stop(t, b.m)
	_, err := b.pauser().Pause(within(t), b.m, driver.KeepMemory)
	wantKind(t, "pause what has ended", err, sandbox.Unavailable)
	b.end()
}

// testPauseFailure: a pause that does not begin leaves the machine as it was.
func testPauseFailure(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	c := b.startCounter()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.pauser().Pause(ended, b.m, driver.KeepMemory); !errors.Is(err, context.Canceled) {
		t.Fatalf("pause in an ended context: %v", err)
	}
	if _, err := b.pauser().Pause(within(t), b.m, "everything"); err == nil {
		t.Fatal("an unknown thing to keep was kept")
	}
	b.follow(c, 3)
	b.end()
}

// testPauseSweep: what is to be kept stays aside.
func testPauseSweep(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	c := b.startCounter()
	saved := b.pause(driver.KeepMemory)
	swept, err := b.d.Sweep(within(t), []sandbox.ID{b.spec.ID})
	if err != nil || len(swept) > 0 {
		t.Fatalf("sweep: %v, %v", swept, err)
	}
	b.resume(saved)
	b.follow(c, 2)
	saved = b.pause(driver.KeepMemory)
	if _, err := b.d.Sweep(within(t), nil); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, h)
	_, err = b.pauser().Resume(within(t), b.spec, saved)
	wantKind(t, "resume what was swept", err, sandbox.NotFound)
	b.end()
}

// testDiscard: all of what is aside goes, at once and for good.
func testDiscard(t *testing.T, h Harness) {
	for _, keep := range []driver.Keep{driver.KeepMemory, driver.KeepDisk} {
		b, ok := makeBed(t, h)
		if !ok {
			return
		}
		b.startCounter()
		err := b.pauser().Discard(within(t), b.spec.ID)
		wantKind(t, "discard what runs", err, sandbox.Conflict)
		saved := b.pause(keep)
		b.end()
		_, err = b.pauser().Resume(within(t), b.spec, saved)
		wantKind(t, "resume what was discarded", err, sandbox.NotFound)
		b.end()
	}
	err := h.Driver.(driver.Pauser).Discard(within(t), "../../../tmp/abcdefgh")
	wantKind(t, "discard an id that climbs", err, sandbox.Invalid)
}

// testFind: what Pause and Resume gave can be asked for again.
func testFind(t *testing.T, h Harness) {
	f, can := h.Driver.(driver.Finder)
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	if !can {
		t.Logf("LOUDLY: the driver %s cannot say what became of a machine", h.Driver.Class())
		b.end()
		return
	}
	c := b.startCounter()
	b.wantFound(f, string(b.m.State()), "")
	saved := b.pause(driver.KeepMemory)
	b.wantFound(f, "", string(saved))
	if h.Reopen != nil {
		b.later(h.Reopen)
		f = b.d.(driver.Finder)
		b.wantFound(f, "", string(saved))
	}
	found, err := f.Find(within(t), b.spec.ID)
	if err != nil {
		t.Fatal(err)
	}
	b.resume(found.Saved)
	b.follow(c, 2)
	b.wantFound(f, string(b.m.State()), "")
	if h.Reopen != nil {
		found, err := f.Find(within(t), b.spec.ID)
		if err != nil {
			t.Fatal(err)
		}
		b.later(h.Reopen)
		m, err := b.d.Recover(within(t), b.spec.ID, found.State)
		if err != nil {
			t.Fatal(err)
		}
		b.use(m)
		b.follow(c, 2)
		f = b.d.(driver.Finder)
	}
	b.end()
	_, err = f.Find(within(t), b.spec.ID)
	wantKind(t, "find what is gone", err, sandbox.NotFound)
}

func (b *bed) wantFound(f driver.Finder, state, saved string) {
	b.t.Helper()
	got, err := f.Find(within(b.t), b.spec.ID)
	if err != nil || string(got.State) != state || string(got.Saved) != saved {
		b.t.Fatalf("found %q and %q, %v; want %q and %q", got.State, got.Saved, err, state, saved)
	}
}

// testResize: limits change while the machine runs, and bad ones do not.
func testResize(t *testing.T, h Harness) {
	r, can := h.Driver.(driver.Resizer)
	if !can {
		t.Logf("the driver %s changes no limits while a machine runs", h.Driver.Class())
		return
	}
	spec := h.Spec()
	m := create(t, h.Driver, spec)
	l := spec.Limits
	l.CPUMilli, l.MemoryBytes = 500, 512<<20
	for range 2 {
		if err := r.Resize(within(t), m, l); err != nil {
			t.Fatalf("resize: %v", err)
		}
	}
	l.CPUMilli, l.MemoryBytes = 2000, 3<<30
	if err := r.Resize(within(t), m, l); err != nil {
		t.Fatalf("resize: %v", err)
	}
	l.MemoryBytes = -1
	wantKind(t, "bad limits", r.Resize(within(t), m, l), sandbox.Invalid)
	if got := output(t, client(t, m), "echo well"); got != "well\n" {
		t.Errorf("got %q", got)
	}
	stop(t, m)
}

// testResizedWakes: a machine whose memory was changed while it ran is taken up and
// copied as any other.
func testResizedWakes(t *testing.T, h Harness) {
	r, can := h.Driver.(driver.Resizer)
	if !can {
		t.Logf("the driver %s changes no limits while a machine runs", h.Driver.Class())
		return
	}
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	c := b.startCounter()
	for _, bytes := range []int64{3 << 30, 512 << 20} {
		b.spec.Limits.MemoryBytes = bytes
		if err := r.Resize(within(t), b.m, b.spec.Limits); err != nil {
			t.Fatalf("resize: %v", err)
		}
		b.resume(b.pause(driver.KeepMemory))
		b.follow(c, 3)
	}
	b.spec.Limits.MemoryBytes = 1 << 30
	if err := r.Resize(within(t), b.m, b.spec.Limits); err != nil {
		t.Fatalf("resize: %v", err)
	}
	if _, forks := b.forks(); forks {
		child := b.forked(1)[0]
		output(t, child.guest, "true")
		child.endAmong()
	}
	b.end()
}
