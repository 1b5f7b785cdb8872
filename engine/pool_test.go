package engine_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

func pooled(floor, ceiling int) func(*engine.Config) {
	return func(c *engine.Config) {
		c.Pool = engine.PoolConfig{Floor: floor, Ceiling: ceiling, Quiet: time.Nanosecond}
	}
}

// awaitWarm waits until so many machines wait, and returns the ids of all that
// there are.
func (h *house) awaitWarm(t *testing.T, n int) []sandbox.ID {
	t.Helper()
	await(t, "the pool is as it should be", func() bool {
		st, err := h.Status(operator(t))
		return err == nil && st.Warm == n
	})
	return h.world.ids()
}

func TestACreateTakesAMachineThatWaits(t *testing.T) {
	h := newHouse(t, pooled(1, 4))
	first := h.create(t, sandbox.CreateRequest{})
	ids := slices.DeleteFunc(h.awaitWarm(t, 1), func(id sandbox.ID) bool { return id == first.ID })
	if list, err := h.List(operator(t), sandbox.ListQuery{}); err != nil || len(list.Sandboxes) != 1 {
		t.Errorf("what waits is seen: %+v, %v", list, err)
	}
	second := h.create(t, sandbox.CreateRequest{Limits: sandbox.Limits{CPUMilli: 250}})
	if second.ID != ids[0] {
		t.Fatalf("%s was made, %s waited", second.ID, ids[0])
	}
	h.world.mu.Lock()
	got := h.world.machines[second.ID].limits
	h.world.mu.Unlock()
	if got != second.Limits || got.CPUMilli != 250 {
		t.Errorf("it has the limits %+v, not %+v", got, second.Limits)
	}
	waits := h.awaitWarm(t, 2) // of whatever size: the memory follows, the disk does not
	if other := h.create(t, sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 1 << 30}}); other.Limits.MemoryBytes != 1<<30 || !slices.Contains(waits, other.ID) {
		t.Errorf("limits %+v of %s; %s waited", other.Limits, other.ID, waits)
	}
	if third := h.create(t, sandbox.CreateRequest{Limits: sandbox.Limits{DiskBytes: 1 << 30}}); third.Limits.DiskBytes != 1<<30 {
		t.Errorf("limits %+v", third.Limits)
	}
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	for _, m := range h.world.machines {
		if m.limits.DiskBytes != sandbox.DefaultLimits().DiskBytes && m.limits.DiskBytes != 1<<30 {
			t.Errorf("a machine with a disk of %d", m.limits.DiskBytes)
		}
	}
}

func TestNoneIsHandedOutTwice(t *testing.T) {
	h := newHouse(t, pooled(8, 8))
	h.create(t, sandbox.CreateRequest{})
	h.awaitWarm(t, 8)
	var wg sync.WaitGroup
	var all sync.Map
	for range 60 {
		wg.Go(func() {
			s, err := h.Create(operator(t), sandbox.CreateRequest{})
			if err != nil {
				t.Error(err)
			} else if _, again := all.LoadOrStore(s.ID, true); again {
				t.Errorf("%s was handed out twice", s.ID)
			}
		})
	}
	wg.Wait()
}

func TestWhatWaitsIsGoneAfterARestart(t *testing.T) {
	for name, end := range map[string]func(*house){
		"closed": func(h *house) { h.Close() },
		"killed": func(h *house) {}, // it goes on, but knows nothing of what the next one does
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, pooled(3, 3))
			s := h.create(t, sandbox.CreateRequest{})
			h.awaitWarm(t, 3)
			end(h)
			if name == "closed" && len(h.world.ids()) != 1 {
				t.Errorf("left running: %v", h.world.ids())
			}
			old := h.Engine
			h.open(t)
			if ids := h.world.ids(); len(ids) != 1 || ids[0] != s.ID {
				t.Errorf("left: %v, want %s alone", ids, s.ID)
			}
			old.Close()
		})
	}
}

func TestAMachineThatEndsWhileItWaits(t *testing.T) {
	h := newHouse(t, pooled(1, 1))
	first := h.create(t, sandbox.CreateRequest{})
	ids := slices.DeleteFunc(h.awaitWarm(t, 1), func(id sandbox.ID) bool { return id == first.ID })
	h.world.crash(ids[0], "killed")
	await(t, "another waits", func() bool {
		now := h.world.ids()
		return len(now) == 2 && !slices.Contains(now, ids[0])
	})
	if s := h.create(t, sandbox.CreateRequest{}); s.ID == ids[0] {
		t.Error("the dead one was handed out")
	}
}

func TestThePoolFollowsItsTemplate(t *testing.T) {
	h := newHouse(t, pooled(2, 2))
	first := h.create(t, sandbox.CreateRequest{})
	old := h.awaitWarm(t, 2)
	if _, err := h.BuildTemplate(operator(t), sandbox.BuildRequest{Name: "base", From: "distribution:bookworm"}, nil); err != nil {
		t.Fatal(err)
	}
	s := h.create(t, sandbox.CreateRequest{})
	if slices.Contains(old, s.ID) {
		t.Error("it runs on the root of before")
	}
	await(t, "those on the old root are ended", func() bool {
		for _, id := range h.world.ids() {
			if id != first.ID && slices.Contains(old, id) {
				return false
			}
		}
		return true
	})
}

func TestMemoryPressureDrainsThePool(t *testing.T) {
	var free atomic.Int64
	free.Store(100)
	h := newHouse(t, func(c *engine.Config) {
		pooled(2, 2)(c)
		c.Pool.Available, c.Pool.Reserve = func() (int64, error) { return free.Load(), nil }, 80
	})
	h.create(t, sandbox.CreateRequest{})
	h.awaitWarm(t, 2)
	free.Store(30)
	h.create(t, sandbox.CreateRequest{}) // makes it look
	h.awaitWarm(t, 0)
	if n := len(h.world.ids()); n != 2 {
		t.Errorf("%d machines for two sandboxes", n)
	}
}

func TestACreateWithAMachineThatWaitsFails(t *testing.T) {
	h := newHouse(t, pooled(1, 1))
	first := h.create(t, sandbox.CreateRequest{})
	h.awaitWarm(t, 1)
	h.records.mu.Lock()
	h.records.count = 0
	h.records.before = func(n int, _ record.Txn) error {
		if n == 2 { // to running
			return errors.New("broken on purpose")
		}
		return nil
	}
	h.records.mu.Unlock()
	if _, err := h.Create(operator(t), sandbox.CreateRequest{}); err == nil {
		t.Fatal("it was made")
	}
	h.records.mu.Lock()
	h.records.before = nil
	h.records.mu.Unlock()
	if err := h.Remove(operator(t), string(first.ID)); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

// TestThePoolOfATemplateThatStartsSomething keeps machines that go on from what it
// has started, until it is built anew.
func TestThePoolOfATemplateThatStartsSomething(t *testing.T) {
	h := newHouse(t, keeping(t, &memory.Store{}), pooled(1, 2))
	box := h.create(t, sandbox.CreateRequest{})
	h.world.put(box.ID, content{"started", "disk"})
	kept, err := h.Snapshot(operator(t), string(box.ID), sandbox.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	started := func(id sandbox.ID) {
		h.templates.mu.Lock()
		defer h.templates.mu.Unlock()
		base := h.templates.all["base"]
		base.Snapshot, base.Account = id, sandbox.MainAccount
		h.templates.all["base"] = base
	}
	started(kept.ID)
	first := h.create(t, sandbox.CreateRequest{})
	var waits sandbox.ID
	await(t, "one that was started waits, and none of before", func() bool {
		st, err := h.Status(operator(t))
		for _, id := range h.world.ids() {
			if c, lives := h.world.inside(id); id != box.ID && id != first.ID && lives && c.memory == "started" {
				waits = id
			}
		}
		return err == nil && st.Warm == 1 && waits != ""
	})
	second := h.create(t, sandbox.CreateRequest{})
	if second.ID != waits {
		t.Errorf("%s was made, %s waited", second.ID, waits)
	}
	for _, id := range []sandbox.ID{first.ID, second.ID} {
		if c, _ := h.world.inside(id); c.memory != "started" {
			t.Errorf("%s has %q", id, c.memory)
		}
	}
	// A snapshot that somebody has taken is made from that, and waits for nobody.
	own := h.create(t, sandbox.CreateRequest{Snapshot: string(kept.ID)})
	started("")
	third := h.create(t, sandbox.CreateRequest{})
	if c, _ := h.world.inside(third.ID); c.memory != "" {
		t.Errorf("it goes on from what is started no more: %q", c.memory)
	}
	if c, _ := h.world.inside(own.ID); c.memory != "started" {
		t.Errorf("of the snapshot: %q", c.memory)
	}
}
