package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// autos are the checkpoints that are there.
func autos(t *testing.T, h *house) (all []sandbox.Snapshot) {
	t.Helper()
	list, err := h.Snapshots(operator(t), sandbox.SnapshotQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if s.Auto {
			all = append(all, s)
		}
	}
	return all
}

func every(d time.Duration, keep sandbox.Keep) sandbox.CreateRequest {
	return sandbox.CreateRequest{Name: "box", Checkpoint: &sandbox.Checkpoint{EverySeconds: int64(d / time.Second), Keep: keep}}
}

// TestCheckpoints: the newest is kept while it runs, and goes with it.
func TestCheckpoints(t *testing.T) {
	keepingBubble(t, func(t *testing.T, h *house, _ *memory.Store) {
		s := h.create(t, every(time.Minute, ""))
		after(59 * time.Second)
		if got := autos(t, h); len(got) != 0 {
			t.Fatalf("too soon: %+v", got)
		}
		var last sandbox.ID
		for range 3 {
			after(time.Minute)
			got := autos(t, h)
			if len(got) != 1 || got[0].ID == last || got[0].Sandbox != s.ID || got[0].Keep != sandbox.KeepMemory {
				t.Fatalf("checkpoints: %+v", got)
			}
			last = got[0].ID
		}
		if _, err := h.Pause(operator(t), "box"); err != nil {
			t.Fatal(err)
		}
		after(time.Hour) // what sleeps needs none
		if got := autos(t, h); len(got) != 1 || got[0].ID != last {
			t.Errorf("while it is paused: %+v", got)
		}
		if err := h.Remove(operator(t), "box"); err != nil {
			t.Fatal(err)
		}
		if got := autos(t, h); len(got) != 0 {
			t.Errorf("left: %+v", got)
		}
	})
}

// TestALostMachineGoesOnFromItsCheckpoint: with the server there, and after a
// restart, which wakes it.
func TestALostMachineGoesOnFromItsCheckpoint(t *testing.T) {
	for keep, want := range map[sandbox.Keep]content{sandbox.KeepMemory: {"memory 1", "disk 1"}, sandbox.KeepDisk: {"", "disk 1"}} {
		keepingBubble(t, func(t *testing.T, h *house, _ *memory.Store) {
			s := h.create(t, every(time.Minute, keep))
			h.world.put(s.ID, content{"memory 1", "disk 1"})
			after(61 * time.Second)
			h.world.put(s.ID, content{"memory 2", "disk 2"})
			h.world.crash(s.ID, "killed")
			after(time.Second)
			aside := map[sandbox.Keep]sandbox.State{sandbox.KeepMemory: sandbox.Paused, sandbox.KeepDisk: sandbox.Stopped}[keep]
			got := h.wantState(t, s, aside)
			if !strings.Contains(got.Reason, "its checkpoint, ") || !strings.Contains(got.Reason, "old, is what there is") {
				t.Errorf("reason: %q", got.Reason)
			}
			if _, err := h.Awake(operator(t), "box"); err != nil {
				t.Fatal(err)
			}
			if inside, lives := h.world.inside(s.ID); !lives || inside != want {
				t.Errorf("inside is %+v", inside)
			}
			if got := autos(t, h); len(got) != 1 {
				t.Errorf("checkpoints: %+v", got)
			}
		})
	}
}

// TestTheHostGoesDown loses every machine that ran: those with a checkpoint run
// again from it, the others have failed, with the reason.
func TestTheHostGoesDown(t *testing.T) {
	keepingBubble(t, func(t *testing.T, h *house, b *memory.Store) {
		boot := func(c *engine.Config) { c.Boot = "first" }
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h.open(t, keeping(t, b), boot)
		with := h.create(t, every(time.Minute, ""))
		without := h.create(t, sandbox.CreateRequest{Name: "bare"})
		paused := h.create(t, sandbox.CreateRequest{Name: "asleep"})
		h.world.put(with.ID, content{"memory 1", "disk 1"})
		if _, err := h.Pause(operator(t), "asleep"); err != nil {
			t.Fatal(err)
		}
		after(61 * time.Second)
		last := autos(t, h)[0].ID
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h.world.forget(with.ID)
		h.world.forget(without.ID)
		h.open(t, keeping(t, b), func(c *engine.Config) { c.Boot = "second" })
		after(time.Second)
		h.wantState(t, with, sandbox.Running)
		if inside, lives := h.world.inside(with.ID); !lives || inside.memory != "memory 1" {
			t.Errorf("inside is %+v", inside)
		}
		if got := h.wantState(t, without, sandbox.Failed); got.Reason != "the host was restarted while it ran" {
			t.Errorf("reason: %q", got.Reason)
		}
		h.wantState(t, paused, sandbox.Paused)
		page, err := h.Changes(operator(t), sandbox.ChangeQuery{Sandbox: string(with.ID), Types: []sandbox.ChangeType{"paused"}})
		if err != nil || len(page.Events) != 1 || !strings.HasPrefix(page.Events[0].Reason, "the host was restarted while it ran; its checkpoint, ") {
			t.Errorf("told: %+v, %v", page.Events, err)
		}
		after(61 * time.Second)
		if got := autos(t, h); len(got) != 1 || got[0].ID == last {
			t.Errorf("it takes none any more: %+v", got)
		}
	})
}

// forget ends a machine without a word, as when its host goes down.
func (w *world) forget(id sandbox.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.machines, id)
}
