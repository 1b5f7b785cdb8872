package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

func forkOf(n int, names ...string) sandbox.ForkRequest {
	return sandbox.ForkRequest{Count: n, Names: names}
}

func TestForkGivesWhatTheSandboxHas(t *testing.T) {
	for _, state := range []sandbox.State{sandbox.Running, sandbox.Paused, sandbox.Stopped} {
		t.Run(string(state), func(t *testing.T) {
			h := newHouse(t)
			wake := false
			parent := h.create(t, sandbox.CreateRequest{Name: "box", Metadata: map[string]string{"a": "1", "b": "2"}, Tags: []string{"t"},
				Env: map[string]string{"E": "v"}, Limits: sandbox.Limits{CPUMilli: 700}, Wake: &wake})
			h.world.put(parent.ID, content{"memory", "disk"})
			want := content{"memory", "disk"}
			switch state {
			case sandbox.Paused:
				if _, err := h.Pause(operator(t), "box"); err != nil {
					t.Fatal(err)
				}
			case sandbox.Stopped:
				if _, err := h.Stop(operator(t), "box"); err != nil {
					t.Fatal(err)
				}
				want.memory = ""
			}
			nine := "9"
			f, err := h.Fork(operator(t), "box", sandbox.ForkRequest{Count: 3, Names: []string{"one", "", "three"}, Metadata: map[string]*string{"a": &nine, "b": nil}})
			if err != nil {
				t.Fatal(err)
			}
			if len(f.Children) != 3 || f.Pause <= 0 || len(f.Stages) == 0 {
				t.Fatalf("%+v", f)
			}
			for i, c := range f.Children {
				if c.Err != nil {
					t.Fatal(c.Err)
				}
				got, err := h.Get(operator(t), string(c.Sandbox.ID))
				if err != nil || got.State != sandbox.Running || got.Parent != parent.ID || got.Name != []string{"one", "", "three"}[i] {
					t.Errorf("%+v %v", got, err)
				}
				if got.Limits != parent.Limits || got.Env["E"] != "v" || got.Tags[0] != "t" || got.Wake == nil || *got.Wake ||
					fmt.Sprint(got.Metadata) != "map[a:9]" || got.Account != parent.Account || got.Started.IsZero() {
					t.Errorf("not as the parent: %+v", got)
				}
				if in, lives := h.world.inside(c.Sandbox.ID); !lives || in != want {
					t.Errorf("inside is %+v", in)
				}
			}
			if got, err := h.Get(operator(t), "box"); err != nil || got.State != state {
				t.Errorf("the parent is %+v, %v", got, err)
			}
			page, err := h.Changes(operator(t), sandbox.ChangeQuery{Sandbox: string(f.Children[0].Sandbox.ID)})
			if err != nil || len(page.Events) != 2 || page.Events[1].Parent != parent.ID || page.Events[1].State != sandbox.Running {
				t.Errorf("%+v %v", page, err)
			}
			if _, err := h.Fork(operator(t), "one", forkOf(1)); err != nil { // of a fork
				t.Error(err)
			}
			list, err := h.List(operator(t), sandbox.ListQuery{})
			if err != nil || len(list.Sandboxes) != 5 {
				t.Fatalf("%d sandboxes, %v", len(list.Sandboxes), err)
			}
			for _, s := range list.Sandboxes {
				if err := h.Remove(operator(t), string(s.ID)); err != nil {
					t.Error(err)
				}
			}
			h.nothingLeft(t)
		})
	}
}

func TestForkRefusals(t *testing.T) {
	h := newHouse(t, func(c *engine.Config) { c.Forks = 5 })
	s := h.create(t, sandbox.CreateRequest{Name: "box"})
	failed := h.create(t, sandbox.CreateRequest{Name: "bad"})
	h.world.crash(failed.ID, "on purpose")
	await(t, "it is failed", func() bool {
		got, err := h.Get(operator(t), string(failed.ID))
		return err == nil && got.State == sandbox.Failed
	})
	for _, c := range []struct {
		id   string
		req  sandbox.ForkRequest
		kind sandbox.Kind
	}{
		{"box", forkOf(0), sandbox.Invalid},
		{"box", forkOf(-1), sandbox.Invalid},
		{"box", forkOf(10_000), sandbox.Invalid},
		{"box", forkOf(1, "a", "b"), sandbox.Invalid},
		{"box", forkOf(2, "a", "a"), sandbox.Invalid},
		{"box", forkOf(1, "NOT A NAME"), sandbox.Invalid},
		{"box", sandbox.ForkRequest{Count: 1, Tags: []string{"-"}}, sandbox.Invalid},
		{"box", forkOf(6), sandbox.Exhausted},
		{"nobody", forkOf(1), sandbox.NotFound},
		{"../x", forkOf(1), sandbox.Invalid},
		{string(sandbox.NewID()), forkOf(1), sandbox.NotFound},
		{string(failed.ID), forkOf(1), sandbox.Conflict},
		{"box", forkOf(1, "box"), sandbox.Conflict},
	} {
		_, err := h.Fork(operator(t), c.id, c.req)
		if sandbox.KindOf(err) != c.kind || sandbox.HintOf(err) == "" {
			t.Errorf("fork %q %+v: %v (%s), want %s with a hint", c.id, c.req, err, sandbox.HintOf(err), c.kind)
		}
	}
	if ids := h.world.ids(); len(ids) != 1 || ids[0] != s.ID {
		t.Errorf("machines: %v", ids)
	}
}

// TestForkInPart: children that fail leave nothing and take no other with them.
func TestForkInPart(t *testing.T) {
	h := newHouse(t)
	h.create(t, sandbox.CreateRequest{Name: "box"})
	h.create(t, sandbox.CreateRequest{Name: "taken"})
	h.world.set("fork 2", errBroken)
	f, err := h.Fork(operator(t), "box", forkOf(4, "", "", "taken", "four"))
	if err != nil {
		t.Fatal(err)
	}
	for i, kind := range []sandbox.Kind{"", sandbox.Exhausted, sandbox.Conflict, ""} {
		c := f.Children[i]
		if (kind == "") != (c.Err == nil) || kind != "" && sandbox.KindOf(c.Err) != kind || (c.Err == nil) != (c.Sandbox != nil) {
			t.Errorf("child %d: %+v, %v, want %q", i, c.Sandbox, c.Err, kind)
		}
	}
	if n := len(h.world.ids()); n != 4 {
		t.Errorf("%d machines", n)
	}
	h.world.set("fork 2", nil)
	h.world.set("fork", errBroken)
	_, err = h.Fork(operator(t), "box", forkOf(2))
	wantKind(t, err, sandbox.Exhausted)
	page, err := h.List(operator(t), sandbox.ListQuery{})
	if err != nil || len(page.Sandboxes) != 4 {
		t.Fatalf("%d sandboxes, %v", len(page.Sandboxes), err)
	}
}

// TestForkAndOthers: while a fork runs, its sandbox is neither paused nor removed,
// and its children are not to be had.
func TestForkAndOthers(t *testing.T) {
	h := newHouse(t)
	h.world.forking, h.world.leave = make(chan int), make(chan struct{})
	h.create(t, sandbox.CreateRequest{Name: "box"})
	ctx := operator(t)
	forked, removed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := h.Fork(ctx, "box", forkOf(1, "child"))
		forked <- err
	}()
	<-h.world.forking
	child, err := h.Get(ctx, "child")
	if err != nil || child.State != sandbox.Starting {
		t.Errorf("%+v, %v", child, err)
	}
	go func() { removed <- h.Remove(ctx, "box") }()
	select {
	case err := <-removed:
		t.Errorf("removed in the midst of it: %v", err)
	case h.world.leave <- struct{}{}:
	}
	if err := <-forked; err != nil {
		t.Error(err)
	}
	if err := <-removed; err != nil {
		t.Error(err)
	}
	if got, err := h.Get(ctx, "child"); err != nil || got.State != sandbox.Running {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestForkThatCannotBeUndone: children whose records cannot be written and whose machines
// cannot be stopped are not lost sight of, whichever record it is.
func TestForkThatCannotBeUndone(t *testing.T) {
	for _, running := range []bool{false, true} {
		h := newHouse(t)
		h.create(t, sandbox.CreateRequest{Name: "box"})
		h.records.before = func(_ int, txn record.Txn) error {
			for _, op := range txn.Then {
				// A child's first record has no machine yet, the one that says that it runs has.
				if has := strings.HasPrefix(op.Key, "machine/"); has || !running && strings.HasPrefix(op.Key, "sandbox/") {
					return errBroken
				}
			}
			return nil
		}
		h.world.set("stop", errBroken)
		_, err := h.Fork(operator(t), "box", forkOf(2))
		wantKind(t, err, sandbox.Exhausted)
		if !strings.Contains(err.Error(), "undoing") {
			t.Errorf("running %v: it is not told that something is left: %v", running, err)
		}
		h.records.before = nil
		if running { // they are on record, so that they can be removed
			page, err := h.List(operator(t), sandbox.ListQuery{States: []sandbox.State{sandbox.Failed}})
			if err != nil || len(page.Sandboxes) != 2 {
				t.Fatalf("%+v, %v", page, err)
			}
			for _, s := range page.Sandboxes {
				wantKind(t, h.Remove(operator(t), string(s.ID)), sandbox.Exhausted)
			}
			h.world.set("stop", nil)
			for _, s := range page.Sandboxes {
				if err := h.Remove(operator(t), string(s.ID)); err != nil {
					t.Error(err)
				}
			}
		} else { // nobody can name them: they go with the garbage
			if _, err := h.Collect(operator(t), false); sandbox.KindOf(err) != sandbox.Exhausted {
				t.Errorf("collect what cannot be stopped: %v", err)
			}
			h.world.set("stop", nil)
			for _, dry := range []bool{true, false} {
				g, err := h.Collect(operator(t), dry)
				if err != nil || len(g.Items) != 2 || g.Items[0].Kind != sandbox.LitterMachine {
					t.Errorf("collected (dry %v): %+v, %v", dry, g, err)
				}
			}
		}
		if err := h.Remove(operator(t), "box"); err != nil {
			t.Error(err)
		}
		h.nothingLeft(t)
	}
}

// TestForkCrashes breaks a fork at each of its steps, in each way: the sandbox is
// as it was, and each child is whole or not there.
func TestForkCrashes(t *testing.T) {
	for _, from := range []sandbox.State{sandbox.Running, sandbox.Paused} {
		x := newTown(t, from)
		x.fate.arm(-1, "")
		if _, err := x.e.Fork(operator(t), "box", forkOf(2)); err != nil {
			t.Fatal(err)
		}
		steps := x.fate.taken()
		x.checkForked(from, true, "undisturbed")
		for at, step := range steps {
			for _, how := range []fault{errorBefore, errorAfter, killedBefore, killedAfter} {
				if how == errorAfter && !mayFollow(step) {
					continue
				}
				what := fmt.Sprintf("from %s, %s step %d (%s)", from, how, at, step)
				x := newTown(t, from)
				if how == errorAfter { // children go on record while their machines are made
					x.fate.armFor(at, how, step)
				} else {
					x.fate.arm(at, how)
				}
				_, _ = x.e.Fork(operator(t), "box", forkOf(2)) // checkForked looks at what came of it
				if how == killedBefore || how == killedAfter {
					if !x.fate.isDead() {
						t.Fatalf("%s: nothing befell it", what)
					}
					if err := x.open(-1, ""); err != nil {
						t.Fatalf("%s: open: %v", what, err)
					}
				}
				x.checkForked(from, false, what)
			}
		}
	}
}

// checkForked holds what is there after a fork to the invariants.
func (x *town) checkForked(from sandbox.State, whole bool, how string) {
	x.t.Helper()
	page, err := x.e.List(operator(x.t), sandbox.ListQuery{})
	if err != nil {
		x.t.Fatal(err)
	}
	live, aside := 0, 0
	children := 0
	for _, s := range page.Sandboxes {
		switch {
		case s.ID == x.id && s.State != from:
			x.t.Errorf("%s: the sandbox is %s", how, s.State)
		case s.ID != x.id && (s.State != sandbox.Running || s.Parent != x.id):
			x.t.Errorf("%s: a child is %+v", how, s)
		}
		if s.ID != x.id {
			children++
		}
		if s.State == sandbox.Running {
			live++
			if in, lives := x.h.world.inside(s.ID); !lives || in != x.was {
				x.t.Errorf("%s: inside %s is %+v", how, s.ID, in)
			}
		} else {
			aside++
		}
	}
	if l, a := len(x.h.world.ids()), len(x.h.world.asides()); l != live || a != aside || whole && children != 2 {
		x.t.Errorf("%s: %d machines and %d aside for %d and %d, %d children", how, l, a, live, aside, children)
	}
	x.journal(how)
	for _, s := range page.Sandboxes {
		if err := x.e.Remove(operator(x.t), string(s.ID)); err != nil {
			x.t.Errorf("%s: remove: %v", how, err)
		}
	}
	x.oneOwner(sandbox.Deleted, how)
	x.keys(sandbox.Deleted, how)
}
