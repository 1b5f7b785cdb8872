package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// keepingTown is a town with an archive and one snapshot, "then", of a moment
// before the one that x.was shows.
func keepingTown(t *testing.T, from sandbox.State) (*town, *memory.Store) {
	b, dir := &memory.Store{}, t.TempDir()
	x := newTown(t, sandbox.Running)
	if err := x.e.Close(); err != nil {
		t.Fatal(err)
	}
	x.archive = func(f *fate) engine.Archive { return mortalArchive{shelfOf(t, b, dir), f} }
	if err := x.open(-1, ""); err != nil {
		t.Fatal(err)
	}
	x.h.world.put(x.id, content{"memory then", "disk then"})
	if _, err := x.e.Snapshot(operator(t), "box", sandbox.SnapshotRequest{Name: "then"}); err != nil {
		t.Fatal(err)
	}
	x.h.world.put(x.id, x.was)
	var err error
	switch from {
	case sandbox.Paused:
		_, err = x.e.Pause(operator(t), "box")
	case sandbox.Stopped:
		_, err = x.e.Stop(operator(t), "box")
	}
	if err != nil {
		t.Fatal(err)
	}
	return x, b
}

// crashCase is a verb around snapshots, and what holds afterwards.
type crashCase struct {
	name  string
	from  sandbox.State
	do    func(ctx context.Context, e *engine.Engine) error
	check func(x *town, done bool, how string)
	first func(ctx context.Context, e *engine.Engine) error // before it; nil: nothing
}

// town is where the case happens.
func (c *crashCase) town(t *testing.T) (*town, *memory.Store) {
	x, b := keepingTown(t, c.from)
	if c.first != nil {
		if err := c.first(operator(t), x.e); err != nil {
			t.Fatal(err)
		}
	}
	return x, b
}

func crashCases() []crashCase {
	take := func(ctx context.Context, e *engine.Engine) error {
		_, err := e.Snapshot(ctx, "box", sandbox.SnapshotRequest{Name: "now"})
		return err
	}
	back := func(ctx context.Context, e *engine.Engine) error {
		_, err := e.Rollback(ctx, "box", sandbox.RollbackRequest{Snapshot: "then"})
		return err
	}
	all := []crashCase{
		{"remove a snapshot", sandbox.Running, func(ctx context.Context, e *engine.Engine) error { return e.RemoveSnapshot(ctx, "then") }, (*town).removed, nil},
		{"create from a snapshot", sandbox.Running, func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Create(ctx, sandbox.CreateRequest{Name: "child", Snapshot: "then"})
			return err
		}, (*town).born, nil},
		{"stop one that waits at a snapshot", sandbox.Paused, func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Stop(ctx, "box")
			return err
		}, (*town).stoppedThere, back},
	}
	for _, from := range []sandbox.State{sandbox.Running, sandbox.Paused, sandbox.Stopped} {
		all = append(all,
			crashCase{"snapshot of one that is " + string(from), from, take, (*town).taken, nil},
			crashCase{"roll back one that is " + string(from), from, back, (*town).takenBack, nil})
	}
	return all
}

// TestSnapshotCrashes breaks each verb at each of its steps, in each way, and then
// the recovery at each of its own.
func TestSnapshotCrashes(t *testing.T) {
	for _, c := range crashCases() {
		t.Run(c.name, func(t *testing.T) {
			x, b := c.town(t)
			x.fate.arm(-1, "")
			if err := c.do(operator(t), x.e); err != nil {
				t.Fatal(err)
			}
			steps := x.fate.taken()
			t.Logf("steps: %q", steps)
			c.finish(x, b, true, "undisturbed")
			for at, step := range steps {
				for _, how := range []fault{errorBefore, errorAfter, killedBefore, killedAfter} {
					if how == errorAfter && !mayFollow(step) || how == killedBefore && at > 0 {
						continue // to be killed before a step is to be killed after the one before
					}
					c.crash(t, at, how, fmt.Sprintf("%s step %d (%s)", how, at, step))
				}
			}
		})
	}
}

func (c *crashCase) crash(t *testing.T, at int, how fault, what string) {
	t.Helper()
	// recovery -1 is undisturbed; the others end when there is no such step.
	for recovery := -1; ; recovery++ {
		x, b := c.town(t)
		x.fate.arm(at, how)
		err := c.do(operator(t), x.e)
		if how == errorBefore || how == errorAfter {
			c.finish(x, b, err == nil, what)
			return
		}
		label := what
		if recovery >= 0 {
			label = fmt.Sprintf("%s, then killed after step %d of the recovery", what, recovery)
			_ = x.open(recovery, killedAfter)
			if !x.fate.isDead() {
				return
			}
		}
		if err := x.open(-1, ""); err != nil {
			t.Fatalf("%s: open: %v", label, err)
		}
		c.finish(x, b, false, label)
	}
}

// finish holds what is there to the case's own invariants, and to those of all.
func (c *crashCase) finish(x *town, b *memory.Store, done bool, how string) {
	x.t.Helper()
	c.check(x, done, how)
	ctx := operator(x.t)
	all, err := x.e.Snapshots(ctx, sandbox.SnapshotQuery{})
	if err != nil {
		x.t.Fatalf("%s: %v", how, err)
	}
	for _, s := range all {
		child, err := x.e.Create(ctx, sandbox.CreateRequest{Snapshot: string(s.ID)})
		if err != nil {
			x.t.Errorf("%s: snapshot %q is on record and of no use: %v", how, s.Name, err)
			continue
		}
		if err := x.e.Remove(ctx, string(child.ID)); err != nil {
			x.t.Errorf("%s: %v", how, err)
		}
	}
	page, err := x.e.List(ctx, sandbox.ListQuery{})
	if err != nil {
		x.t.Fatalf("%s: %v", how, err)
	}
	for _, s := range page.Sandboxes {
		if err := x.e.Remove(ctx, string(s.ID)); err != nil {
			x.t.Errorf("%s: remove: %v", how, err)
		}
	}
	for _, s := range all {
		if err := x.e.RemoveSnapshot(ctx, string(s.ID)); err != nil {
			x.t.Errorf("%s: remove snapshot: %v", how, err)
		}
	}
	x.oneOwner(sandbox.Deleted, how)
	x.keys(sandbox.Deleted, how)
	if used := x.e.Used(sandbox.MainAccount); used != (sandbox.Quota{}) {
		x.t.Errorf("%s: %+v is still used", how, used)
	}
	x.swept(b, how)
}

// swept: nothing is left of what no record names.
func (x *town) swept(b *memory.Store, how string) {
	x.t.Helper()
	if err := x.e.Close(); err != nil {
		x.t.Fatalf("%s: %v", how, err)
	}
	if _, err := x.archive(&fate{at: -1}).Sweep(x.t.Context(), func(context.Context) ([]blob.Digest, error) { return nil, nil }); err != nil {
		x.t.Fatalf("%s: %v", how, err)
	}
	if n := b.Len(); n != 0 {
		x.t.Errorf("%s: %d blobs are left", how, n)
	}
}

// taken: there is the whole snapshot or none, and the sandbox is as it was.
func (x *town) taken(done bool, how string) {
	x.t.Helper()
	got, err := x.e.Get(operator(x.t), "box")
	if err != nil {
		x.t.Fatalf("%s: %v", how, err)
	}
	now, err := x.e.GetSnapshot(operator(x.t), "now")
	switch {
	case err == nil:
		if got.Snapshot != now.ID || now.Parent == "" {
			x.t.Errorf("%s: the sandbox is of %s, the snapshot is %+v", how, got.Snapshot, now)
		}
	case done || sandbox.KindOf(err) != sandbox.NotFound:
		x.t.Errorf("%s: %v", how, err)
	}
	x.inside(how, func(c content) bool {
		return c == x.was || c == content{"", x.was.disk} && got.State == sandbox.Stopped
	})
}

// takenBack: the sandbox is as it was, or as it was then.
func (x *town) takenBack(done bool, how string) {
	x.t.Helper()
	then := content{"memory then", "disk then"}
	ok := []content{then}
	if !done {
		ok = append(ok, x.was, content{"", x.was.disk})
	}
	x.inside(how, func(c content) bool { return slices.Contains(ok, c) })
}

// stoppedThere: it waits at the snapshot yet, or has that one's disk alone and needs the
// snapshot no more.
func (x *town) stoppedThere(done bool, how string) {
	x.t.Helper()
	got, err := x.e.Get(operator(x.t), "box")
	if err != nil {
		x.t.Fatalf("%s: %v", how, err)
	}
	want := content{"memory then", "disk then"}
	switch {
	case got.State == sandbox.Stopped:
		want.memory = ""
	case done || got.State != sandbox.Paused:
		x.t.Errorf("%s: it is %s", how, got.State)
	}
	x.inside(how, func(c content) bool { return c == want })
}

// inside wakes the sandbox and looks.
func (x *town) inside(how string, ok func(content) bool) {
	x.t.Helper()
	if _, err := x.e.Start(operator(x.t), "box"); err != nil {
		x.t.Errorf("%s: start: %v", how, err)
	}
	if c, lives := x.h.world.inside(x.id); !lives || !ok(c) {
		x.t.Errorf("%s: inside is %+v, lives %v", how, c, lives)
	}
}

func (x *town) removed(done bool, how string) {
	x.t.Helper()
	_, err := x.e.GetSnapshot(operator(x.t), "then")
	if k := sandbox.KindOf(err); k != sandbox.NotFound && (done || k != "") {
		x.t.Errorf("%s: %v", how, err)
	}
	entries, err := x.store.List(operator(x.t), "snapshot", "", 0)
	if err != nil || len(entries) != 0 && len(entries) != 2 {
		x.t.Errorf("%s: %d keys of the snapshot are left, %v", how, len(entries), err)
	}
}

func (x *town) born(done bool, how string) {
	x.t.Helper()
	got, err := x.e.Get(operator(x.t), "child")
	if err != nil {
		if done || !strings.Contains(err.Error(), "no sandbox has the name") {
			x.t.Errorf("%s: %v", how, err)
		}
		return
	}
	if c, lives := x.h.world.inside(got.ID); got.State != sandbox.Running || !lives || c.memory != "memory then" {
		x.t.Errorf("%s: it is %s, inside is %+v", how, got.State, c)
	}
}
