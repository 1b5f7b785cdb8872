package engine_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

func TestRestart(t *testing.T) {
	h := newHouse(t)
	lives := h.create(t, sandbox.CreateRequest{})
	dies := h.create(t, sandbox.CreateRequest{})
	h.halfMade(t)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(h.world.ids()); n != 3 {
		t.Fatalf("%d machines after Close, want 3: Close must end none", n)
	}
	h.world.mu.Lock()
	delete(h.world.machines, dies.ID)
	h.world.mu.Unlock()

	h.open(t)
	page, err := h.List(operator(t), sandbox.ListQuery{})
	if err != nil {
		t.Fatal(err)
	}
	states := map[sandbox.ID]sandbox.State{}
	for _, s := range page.Sandboxes {
		states[s.ID] = s.State
	}
	if len(states) != 2 || states[lives.ID] != sandbox.Running || states[dies.ID] != sandbox.Failed {
		t.Errorf("after the restart: %v", states)
	}
	if ids := h.world.ids(); !slices.Equal(ids, []sandbox.ID{lives.ID}) {
		t.Errorf("machines after the restart: %v", ids)
	}
	if !h.templates.pruned(lives.Image) || h.templates.pruned("sha256:other") {
		t.Error("the templates in use were not kept apart from the others")
	}
	for _, s := range []sandbox.Sandbox{lives, dies} {
		if err := h.Remove(operator(t), string(s.ID)); err != nil {
			t.Error(err)
		}
	}
	h.nothingLeft(t)
}

// halfMade leaves what a server leaves that is killed during a create: a record
// that says starting, and a machine that nobody knows.
func (h *house) halfMade(t *testing.T) {
	t.Helper()
	count := 0
	h.records.before = func(int, record.Txn) error {
		if count++; count > 1 {
			return errBroken
		}
		return nil
	}
	h.world.set("stop", errBroken)
	_, err := h.Create(operator(t), sandbox.CreateRequest{})
	wantKind(t, err, sandbox.Exhausted)
	h.records.before = nil
	h.world.set("stop", nil)
}

func TestMachineEndsByItself(t *testing.T) {
	h := newHouse(t)
	s := h.create(t, sandbox.CreateRequest{})
	h.world.crash(s.ID, "out of memory")
	await(t, "the sandbox is failed", func() bool {
		got, err := h.Get(operator(t), string(s.ID))
		return err == nil && got.State == sandbox.Failed && got.Reason == "out of memory"
	})
	_, err := h.Exec(operator(t), string(s.ID), sandbox.Command{Shell: "true"})
	wantKind(t, err, sandbox.Conflict)
	if !strings.Contains(err.Error(), "out of memory") || sandbox.HintOf(err) == "" {
		t.Errorf("error %v, hint %q", err, sandbox.HintOf(err))
	}
	if ids := h.world.ids(); len(ids) > 0 {
		t.Errorf("machines left: %v", ids)
	}
	if err := h.Remove(operator(t), string(s.ID)); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

// TestWatcherOutlastsTheStore: the store is out of reach when a machine ends.
func TestWatcherOutlastsTheStore(t *testing.T) {
	h := newHouse(t)
	s := h.create(t, sandbox.CreateRequest{})
	failures := 2
	h.records.before = func(int, record.Txn) error {
		if failures--; failures >= 0 {
			return errBroken
		}
		return nil
	}
	h.world.crash(s.ID, "killed")
	await(t, "the sandbox is failed", func() bool {
		got, err := h.Get(operator(t), string(s.ID))
		return err == nil && got.State == sandbox.Failed
	})
}

// TestDriverCannotTell keeps a sandbox whose driver cannot recover it now.
func TestDriverCannotTell(t *testing.T) {
	h := newHouse(t)
	s := h.create(t, sandbox.CreateRequest{})
	h.Close()
	h.world.set("recover", sandbox.Errorf("recover", sandbox.Unavailable, "not now"))
	h.open(t)
	got, err := h.Get(operator(t), string(s.ID))
	if err != nil || got.State != sandbox.Running {
		t.Fatalf("got %+v, %v", got, err)
	}
	_, err = h.Processes(operator(t), string(s.ID))
	wantKind(t, err, sandbox.Unavailable)
	if !strings.Contains(err.Error(), "not now") {
		t.Errorf("text: %v", err)
	}
	h.world.set("recover", nil)
	if _, err = h.Processes(operator(t), string(s.ID)); strings.Contains(err.Error(), "not now") {
		t.Errorf("not adopted again: %v", err)
	}
	if err := h.Remove(operator(t), string(s.ID)); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

func TestRemoveWhatCannotBeRecovered(t *testing.T) {
	h := newHouse(t)
	s, other := h.create(t, sandbox.CreateRequest{}), h.create(t, sandbox.CreateRequest{})
	h.Close()
	h.world.set("recover", sandbox.Errorf("recover", sandbox.Unsupported, "version 9"))
	h.open(t)
	if err := h.Remove(operator(t), string(s.ID)); err != nil {
		t.Fatal(err)
	}
	if ids := h.world.ids(); !slices.Equal(ids, []sandbox.ID{other.ID}) {
		t.Errorf("machines left: %v", ids)
	}
}
