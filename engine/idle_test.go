package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// idleFor is a policy.
func idleFor(d time.Duration, a sandbox.Action, ignore ...sandbox.Activity) sandbox.CreateRequest {
	return sandbox.CreateRequest{Idle: &sandbox.Idle{TimeoutSeconds: int64(d / time.Second), Action: a, Ignore: ignore}}
}

// bubble runs a test in a world whose clock is its own.
func bubble(t *testing.T, f func(t *testing.T, h *house)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		defer h.Close()
		f(t, h)
	})
}

// after lets time pass and then all that is due.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (h *house) wantState(t *testing.T, s sandbox.Sandbox, want sandbox.State) sandbox.Sandbox {
	t.Helper()
	got, err := h.Get(operator(t), string(s.ID))
	if want == sandbox.Deleted {
		wantKind(t, err, sandbox.NotFound)
		return got
	}
	if err != nil || got.State != want {
		t.Fatalf("it is %s (%s), want %s: %v", got.State, got.Reason, want, err)
	}
	return got
}

func TestIdle(t *testing.T) {
	for action, want := range map[sandbox.Action]sandbox.State{
		"": sandbox.Paused, sandbox.ActPause: sandbox.Paused, sandbox.ActStop: sandbox.Stopped, sandbox.ActRemove: sandbox.Deleted,
	} {
		bubble(t, func(t *testing.T, h *house) {
			s, never := h.create(t, idleFor(10*time.Minute, action)), h.create(t, sandbox.CreateRequest{})
			after(9*time.Minute + 59*time.Second)
			h.wantState(t, s, sandbox.Running)
			after(2 * time.Second)
			got := h.wantState(t, s, want)
			if want != sandbox.Deleted && got.Reason == "" {
				t.Error("no reason")
			}
			after(1000 * time.Hour)
			h.wantState(t, never, sandbox.Running)
		})
	}
}

// TestACallIsActivity: each starts the time anew, and none shortens it.
func TestACallIsActivity(t *testing.T) {
	bubble(t, func(t *testing.T, h *house) {
		s := h.create(t, idleFor(time.Minute, ""))
		for range 5 {
			after(40 * time.Second)
			if _, err := h.Awake(operator(t), string(s.ID)); err != nil {
				t.Fatal(err)
			}
		}
		after(59 * time.Second)
		h.wantState(t, s, sandbox.Running)
		after(2 * time.Second)
		h.wantState(t, s, sandbox.Paused)
		if _, err := h.Awake(operator(t), string(s.ID)); err != nil {
			t.Fatal(err)
		}
		after(59 * time.Second)
		h.wantState(t, s, sandbox.Running)
		after(2 * time.Second)
		h.wantState(t, s, sandbox.Paused)
	})
}

func TestAConnectionIsActivity(t *testing.T) {
	bubble(t, func(t *testing.T, h *house) {
		s := h.create(t, idleFor(time.Minute, ""))
		careless := h.create(t, idleFor(time.Minute, "", sandbox.ActivityConnection))
		release, err := h.Connect(operator(t), string(s.ID))
		if err != nil {
			t.Fatal(err)
		}
		other, err := h.Connect(operator(t), string(careless.ID))
		if err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		h.wantState(t, s, sandbox.Running)
		h.wantState(t, careless, sandbox.Paused)
		other()
		release()
		release()
		after(59 * time.Second)
		h.wantState(t, s, sandbox.Running)
		after(2 * time.Second)
		h.wantState(t, s, sandbox.Paused)
	})
}

func TestProcessorUseIsActivity(t *testing.T) {
	bubble(t, func(t *testing.T, h *house) {
		s := h.create(t, idleFor(time.Minute, ""))
		careless := h.create(t, idleFor(time.Minute, "", sandbox.ActivityCPU))
		work := func(share float64) {
			for range 600 {
				after(time.Second)
				h.world.mu.Lock()
				h.world.cpu += time.Duration(share * float64(time.Second))
				h.world.mu.Unlock()
			}
		}
		work(0.2)
		h.wantState(t, s, sandbox.Running)
		h.wantState(t, careless, sandbox.Paused)
		work(0.01)
		h.wantState(t, s, sandbox.Paused)
	})
}

func TestKeepAlive(t *testing.T) {
	bubble(t, func(t *testing.T, h *house) {
		s := h.create(t, idleFor(time.Minute, ""))
		keep := func(seconds int64) {
			if _, err := h.KeepAlive(operator(t), string(s.ID), seconds); err != nil {
				t.Fatal(err)
			}
		}
		keep(3600)
		keep(10) // takes nothing back
		after(59 * time.Minute)
		h.wantState(t, s, sandbox.Running)
		after(2 * time.Minute)
		h.wantState(t, s, sandbox.Paused)
		_, err := h.KeepAlive(operator(t), string(s.ID), 10)
		wantKind(t, err, sandbox.Conflict)
		_, err = h.KeepAlive(operator(t), string(s.ID), -1)
		wantKind(t, err, sandbox.Invalid)
	})
}

func TestLifetime(t *testing.T) {
	life := func(a sandbox.Action) sandbox.CreateRequest {
		return sandbox.CreateRequest{Lifetime: &sandbox.Lifetime{Seconds: 3600, Action: a}}
	}
	bubble(t, func(t *testing.T, h *house) {
		gone, aside, stopped := h.create(t, life("")), h.create(t, life(sandbox.ActRemove)), h.create(t, life(sandbox.ActStop))
		if _, err := h.Pause(operator(t), string(aside.ID)); err != nil {
			t.Fatal(err)
		}
		release, err := h.Connect(operator(t), string(gone.ID)) // not even this
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		after(59 * time.Minute)
		h.wantState(t, gone, sandbox.Running)
		h.wantState(t, aside, sandbox.Paused)
		after(2 * time.Minute)
		h.wantState(t, gone, sandbox.Deleted)
		h.wantState(t, aside, sandbox.Deleted)
		h.wantState(t, stopped, sandbox.Stopped)
		after(100 * time.Hour)
		if _, err := h.Start(operator(t), string(stopped.ID)); err != nil {
			t.Fatal(err)
		}
		after(59 * time.Minute)
		h.wantState(t, stopped, sandbox.Running)
		after(2 * time.Minute)
		h.wantState(t, stopped, sandbox.Stopped)
	})
}

// TestLifetimeOfARun ends one that runs, and leaves alone what is put aside.
func TestLifetimeOfARun(t *testing.T) {
	bubble(t, func(t *testing.T, h *house) {
		s := h.create(t, sandbox.CreateRequest{Lifetime: &sandbox.Lifetime{Seconds: 600, Running: true}})
		if want := s.Started.Add(10 * time.Minute); !s.Ends().Equal(want) {
			t.Errorf("ends %v, want %v", s.Ends(), want)
		}
		after(9 * time.Minute)
		if aside, err := h.Pause(operator(t), string(s.ID)); err != nil || !aside.Ends().IsZero() {
			t.Fatalf("ends %v, %v", aside.Ends(), err)
		}
		after(100 * time.Hour)
		h.wantState(t, s, sandbox.Paused)
		if _, err := h.Resume(operator(t), string(s.ID)); err != nil {
			t.Fatal(err)
		}
		after(9 * time.Minute)
		h.wantState(t, s, sandbox.Running)
		after(2 * time.Minute)
		h.wantState(t, s, sandbox.Deleted)
	})
}

// TestPolicyThatCannotBeKept says why, and is tried again.
func TestPolicyThatCannotBeKept(t *testing.T) {
	bubble(t, func(t *testing.T, h *house) {
		s := h.create(t, idleFor(time.Minute, ""))
		h.world.set("pause", errBroken)
		after(90 * time.Second)
		if got := h.wantState(t, s, sandbox.Running); got.Reason == "" {
			t.Error("no reason")
		}
		h.world.set("pause", nil)
		after(3 * time.Minute)
		h.wantState(t, s, sandbox.Paused)
	})
}

// TestPolicyOutlastsARestart: the time counts from the new start.
func TestPolicyOutlastsARestart(t *testing.T) {
	bubble(t, func(t *testing.T, h *house) {
		s := h.create(t, idleFor(10*time.Minute, ""))
		after(8 * time.Minute)
		h.Close()
		h.open(t)
		defer h.Close()
		after(9 * time.Minute)
		h.wantState(t, s, sandbox.Running)
		after(2 * time.Minute)
		h.wantState(t, s, sandbox.Paused)
		_, err := h.Update(operator(t), string(s.ID), sandbox.Update{Lifetime: &sandbox.Lifetime{Seconds: 1}})
		if err != nil {
			t.Fatal(err)
		}
		after(2 * time.Second)
		h.wantState(t, s, sandbox.Deleted)
	})
}

// TestManyTimers: one goroutine keeps them all, in their order.
func TestManyTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(c *engine.Config) { c.Creates = 1 })
		defer h.Close()
		for i := range 100 {
			r := idleFor(time.Duration(100+i)*time.Second, "", sandbox.ActivityCPU)
			h.create(t, r)
		}
		after(149*time.Second + 500*time.Millisecond)
		page, err := h.List(operator(t), sandbox.ListQuery{States: []sandbox.State{sandbox.Paused}})
		if err != nil || len(page.Sandboxes) != 50 {
			t.Fatalf("%d are paused, %v", len(page.Sandboxes), err)
		}
	})
}
