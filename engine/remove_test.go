package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

func TestRemoveAtOnce(t *testing.T) {
	h := newHouse(t)
	id := string(h.create(t, sandbox.CreateRequest{}).ID)
	ready, errs := make(chan struct{}), make(chan error, 16)
	// Hold the first deletion until all have seen the sandbox.
	var seen sync.WaitGroup
	seen.Add(cap(errs))
	h.world.set("stop", nil)
	for range cap(errs) {
		go func() {
			_, err := h.Get(operator(t), id)
			seen.Done()
			<-ready
			if err == nil {
				err = h.Remove(operator(t), id)
			}
			errs <- err
		}()
	}
	seen.Wait()
	close(ready)
	succeeded := 0
	for range cap(errs) {
		// One that starts after the end of another is NotFound: it is later.
		if err := <-errs; err == nil {
			succeeded++
		} else {
			wantKind(t, err, sandbox.NotFound)
		}
	}
	if succeeded == 0 {
		t.Error("none succeeded")
	}
	h.nothingLeft(t)
}

// TestRemoveWhileRemoving: the second call is under way when the first ends.
func TestRemoveWhileRemoving(t *testing.T) {
	h := newHouse(t)
	id := string(h.create(t, sandbox.CreateRequest{}).ID)
	inside, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	h.records.before = func(int, record.Txn) error {
		once.Do(func() { close(inside); <-goOn })
		return nil
	}
	errs := make(chan error, 2)
	go func() { errs <- h.Remove(operator(t), id) }()
	<-inside
	go func() { errs <- h.Remove(operator(t), id) }()
	close(goOn)
	for range 2 {
		if err := <-errs; err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			t.Error(err)
		}
	}
	h.nothingLeft(t)
	wantKind(t, h.Remove(operator(t), id), sandbox.NotFound)
}

func TestRemoveGoesOnWithoutItsCaller(t *testing.T) {
	h := newHouse(t)
	id := string(h.create(t, sandbox.CreateRequest{}).ID)
	ctx, cancel := context.WithCancel(operator(t))
	h.records.before = func(int, record.Txn) error { cancel(); return nil }
	if err := h.Remove(ctx, id); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

// TestAnotherWriter changes the record behind the engine's back.
func TestAnotherWriter(t *testing.T) {
	h := newHouse(t)
	s := h.create(t, sandbox.CreateRequest{})
	h.records.before = func(_ int, txn record.Txn) error {
		h.records.mu.Lock()
		h.records.before = nil
		h.records.mu.Unlock()
		e, err := h.records.Get(operator(t), "sandbox/"+string(s.ID))
		if err != nil {
			return err
		}
		_, err = h.records.Store.Commit(operator(t), record.Txn{Then: []record.Op{{Key: e.Key, Value: e.Value}}})
		return err
	}
	wantKind(t, h.Remove(operator(t), string(s.ID)), sandbox.Conflict)
	// Nothing was begun: the machine is as it was.
	if got, err := h.Get(operator(t), string(s.ID)); err != nil || got.State != sandbox.Running || len(h.world.ids()) != 1 {
		t.Errorf("got %+v, %v, machines %v", got, err, h.world.ids())
	}
	if err := h.Remove(operator(t), string(s.ID)); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

func TestRemoveUnknown(t *testing.T) {
	h := newHouse(t)
	err := h.Remove(operator(t), string(sandbox.NewID()))
	wantKind(t, err, sandbox.NotFound)
	if !strings.Contains(sandbox.HintOf(err), "berth ls") {
		t.Errorf("hint %q", sandbox.HintOf(err))
	}
	wantKind(t, h.Remove(operator(t), "../../etc"), sandbox.Invalid)
}
