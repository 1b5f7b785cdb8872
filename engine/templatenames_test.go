package engine_test

import (
	"slices"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// started is the snapshot that sandboxes of a template go on from.
func (x *town) started(name string) sandbox.ID {
	x.t.Helper()
	t, err := x.e.Template(operator(x.t), name)
	if err != nil || t.Snapshot == "" {
		x.t.Fatalf("%s: %+v, %v", name, t, err)
	}
	return t.Snapshot
}

// has reports whether a snapshot is there.
func (x *town) has(id sandbox.ID) bool {
	x.t.Helper()
	all, err := x.e.Snapshots(operator(x.t), sandbox.SnapshotQuery{})
	if err != nil {
		x.t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(s sandbox.Snapshot) bool { return s.ID == id })
}

func (x *town) must(err error) {
	x.t.Helper()
	if err != nil {
		x.t.Fatal(err)
	}
}

// TestNamesOfWhatIsStarted: what a template has started belongs to all of its names,
// and goes with the last.
func TestNamesOfWhatIsStarted(t *testing.T) {
	x, _ := guestTown(t)
	ctx := operator(t)
	req := app
	req.Also = []string{"second", "third"}
	_, err := x.e.BuildTemplate(ctx, req, nil)
	x.must(err)
	id := x.started(app.Name)
	for _, name := range req.Also {
		if got := x.started(name); got != id {
			t.Fatalf("%s has started %s, not %s", name, got, id)
		}
	}
	x.must(x.e.RemoveTemplate(ctx, app.Name))
	s, err := x.e.Create(ctx, sandbox.CreateRequest{Template: "second"})
	x.must(err)
	if s.Snapshot != id {
		t.Errorf("it goes on from %q, not %s", s.Snapshot, id)
	}
	x.must(x.e.Remove(ctx, string(s.ID)))

	x.must(x.e.CopyTemplate(ctx, "third", "fourth"))
	x.must(x.e.CopyTemplate(ctx, "base", "third")) // takes its place
	x.must(x.e.RemoveTemplate(ctx, "second"))
	if !x.has(id) {
		t.Fatal("what fourth has started is gone")
	}
	x.must(x.e.CopyTemplate(ctx, "fourth", "fourth"))
	x.must(x.e.CopyTemplate(ctx, "base", "fourth"))
	if x.has(id) {
		t.Error("what no name has started is left")
	}
	wantKind(t, x.e.CopyTemplate(ctx, "nosuch", "fifth"), sandbox.NotFound)
	wantKind(t, x.e.CopyTemplate(ctx, "base", "../x"), sandbox.Invalid)
	req.Also = make([]string, sandbox.MaxBuildNames+1)
	_, err = x.e.BuildTemplate(ctx, req, nil)
	wantKind(t, err, sandbox.Invalid)
}
