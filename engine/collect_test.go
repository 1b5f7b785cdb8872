package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// tidy is a mortal world that says what is put aside in it, wanted or not.
type tidy struct{ mortal }

var _ driver.Tidier = tidy{}

func (w tidy) Litter(context.Context) ([]sandbox.Litter, error) {
	if w.fate.isDead() {
		return nil, errDead
	}
	var all []sandbox.Litter
	for _, id := range w.world.asides() {
		all = append(all, sandbox.Litter{Kind: sandbox.LitterMachine, Name: string(id), Bytes: 1000})
	}
	return all, nil
}

func (w tidy) Clear(context.Context, sandbox.Litter) error { return nil }

// stray leaves something in the world that no record knows.
func (w *world) stray() sandbox.ID {
	w.mu.Lock()
	defer w.mu.Unlock()
	id := sandbox.NewID()
	w.aside[id] = &kept{token: "stray"}
	return id
}

// TestCollectTakesOnlyWhatNothingNeeds has servers that collect while sandboxes
// are made, put aside, woken and removed, and that are killed at any step. After
// each the next has all that is on record, and one collection leaves no stray.
func TestCollectTakesOnlyWhatNothingNeeds(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 9))
	h := newHouse(t)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	open := func(at int, how fault) (*engine.Engine, *fate) {
		f := &fate{at: -1}
		f.arm(at, how)
		e, err := engine.New(engine.Config{Drivers: []driver.Driver{tidy{mortal{h.world, f}}}, Records: mortalStore{h.records.Store, f}, Templates: h.templates})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Open(operator(t)); err != nil && at < 0 {
			t.Fatal(err)
		}
		return e, f
	}
	strays := 0
	for round := range 60 {
		for range 1 + rng.IntN(3) {
			h.world.stray()
			strays++
		}
		e, _ := open(rng.IntN(40), []fault{killedBefore, killedAfter}[rng.IntN(2)])
		var wg sync.WaitGroup
		for worker := range 4 {
			seed := rng.Uint64()
			wg.Go(func() { churn(t, e, rand.New(rand.NewPCG(seed, uint64(worker)))) })
		}
		wg.Wait()
		e.Close()

		e, _ = open(-1, "")
		if g, err := e.Collect(operator(t), true); err != nil || g.Removed {
			t.Fatalf("round %d: %+v, %v", round, g, err)
		}
		if _, err := e.Collect(operator(t), false); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		checkOwned(t, h.world, e, round)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d strays, %d left", strays, len(h.world.asides()))
}

// churn does what comes to mind, until the server is dead or bored.
func churn(t *testing.T, e *engine.Engine, rng *rand.Rand) {
	ctx := operator(t)
	var ids []string
	for range 12 {
		if len(ids) == 0 || rng.IntN(4) == 0 {
			if s, err := e.Create(ctx, sandbox.CreateRequest{}); err == nil {
				ids = append(ids, string(s.ID))
			}
			continue
		}
		id := ids[rng.IntN(len(ids))]
		// Whatever an error says, what is on record counts: that is checked.
		switch rng.IntN(6) {
		case 0:
			_, _ = e.Pause(ctx, id)
		case 1:
			_, _ = e.Stop(ctx, id)
		case 2:
			_, _ = e.Start(ctx, id)
		case 3:
			_ = e.Remove(ctx, id)
		default:
			_, _ = e.Collect(ctx, false)
		}
	}
}

// checkOwned: each sandbox on record has what it needs, and nothing else is there.
func checkOwned(t *testing.T, w *world, e *engine.Engine, round int) {
	t.Helper()
	page, err := e.List(operator(t), sandbox.ListQuery{Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	aside, live := map[sandbox.ID]bool{}, map[sandbox.ID]bool{}
	for _, id := range w.asides() {
		aside[id] = true
	}
	for _, id := range w.ids() {
		live[id] = true
	}
	for _, s := range page.Sandboxes {
		has := fmt.Sprintf("round %d: %s is %s (%s): aside %v, live %v", round, s.ID, s.State, s.Reason, aside[s.ID], live[s.ID])
		switch s.State {
		case sandbox.Running:
			if !live[s.ID] || aside[s.ID] {
				t.Fatal(has)
			}
		case sandbox.Paused, sandbox.Stopped:
			if live[s.ID] || !aside[s.ID] {
				t.Fatal(has)
			}
		default:
			t.Fatal(has) // nothing that was acknowledged is lost
		}
		delete(aside, s.ID)
		delete(live, s.ID)
	}
	if len(aside)+len(live) > 0 {
		t.Fatalf("round %d: nobody owns %v %v", round, aside, live)
	}
}

func TestCollectIsTheOperators(t *testing.T) {
	h := newHouse(t)
	ctx := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "other", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	_, err := h.Collect(ctx, true)
	wantKind(t, err, sandbox.Forbidden)
}
