package engine_test

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

func snap(t *testing.T, h *house, id string, req sandbox.SnapshotRequest) sandbox.Snapshot {
	t.Helper()
	sn, err := h.Snapshot(operator(t), id, req)
	if err != nil {
		t.Fatal(err)
	}
	return sn
}

// TestSnapshots keeps a sandbox in each of its states, makes others like it, and
// removes all.
func TestSnapshots(t *testing.T) { keepingBubble(t, snapshots) }

func snapshots(t *testing.T, h *house, b *memory.Store) {
	box := h.create(t, sandbox.CreateRequest{Name: "box", Env: map[string]string{"A": "1", "B": "1"}})
	h.world.put(box.ID, content{"memory 1", "disk 1"})
	first := snap(t, h, "box", sandbox.SnapshotRequest{Name: "first"})
	if first.Keep != sandbox.KeepMemory || first.Parent != "" || first.Sandbox != box.ID || first.Bytes == 0 || first.Stored == 0 || first.Engine != puppetEngine {
		t.Errorf("%+v", first)
	}
	if c, lives := h.world.inside(box.ID); !lives || c.memory != "memory 1" {
		t.Errorf("it does not run on: %+v", c)
	}
	h.world.put(box.ID, content{"memory 2", "disk 2"})
	time.Sleep(time.Second)
	second := snap(t, h, "box", sandbox.SnapshotRequest{Keep: sandbox.KeepDisk})
	if second.Parent != first.ID || second.Keep != sandbox.KeepDisk {
		t.Errorf("%+v", second)
	}
	if _, err := h.Pause(operator(t), "box"); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	paused := snap(t, h, "box", sandbox.SnapshotRequest{})
	if paused.Keep != sandbox.KeepMemory || paused.Parent != second.ID {
		t.Errorf("%+v", paused)
	}
	_, err := h.Snapshot(operator(t), "box", sandbox.SnapshotRequest{Keep: sandbox.KeepDisk})
	wantKind(t, err, sandbox.Conflict)
	if got, err := h.Get(operator(t), "box"); err != nil || got.State != sandbox.Paused || got.Snapshot != paused.ID {
		t.Errorf("%+v, %v", got, err)
	}

	for _, c := range []struct {
		from string
		want content
	}{{"first", content{"memory 1", "disk 1"}}, {string(second.ID), content{"", "disk 2"}}, {string(paused.ID), content{"memory 2", "disk 2"}}} {
		child := h.create(t, sandbox.CreateRequest{Snapshot: c.from, Env: map[string]string{"B": "2"}})
		if got, _ := h.world.inside(child.ID); got != c.want || child.Env["A"] != "1" || child.Env["B"] != "2" || child.Image != box.Image || child.Snapshot == "" {
			t.Errorf("from %s: %+v, %+v", c.from, got, child)
		}
		if err := h.Remove(operator(t), string(child.ID)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := h.Snapshots(operator(t), sandbox.SnapshotQuery{})
	if err != nil || len(all) != 3 || all[0].ID != paused.ID {
		t.Errorf("%+v, %v", all, err)
	}
	if err := h.Remove(operator(t), "box"); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if got, err := h.GetSnapshot(operator(t), string(s.ID)); err != nil || got != s {
			t.Errorf("%+v, %v", got, err)
		}
		if err := h.RemoveSnapshot(operator(t), string(s.ID)); err != nil {
			t.Error(err)
		}
		wantKind(t, h.RemoveSnapshot(operator(t), string(s.ID)), sandbox.NotFound)
	}
	h.nothingLeft(t)
	if after(time.Minute); b.Len() != 0 {
		t.Errorf("%d blobs are left in the archive", b.Len())
	}
	if used := h.Used(sandbox.MainAccount); used != (sandbox.Quota{}) {
		t.Errorf("%+v is still used", used)
	}
}

func TestSnapshotRefusals(t *testing.T) {
	b := &memory.Store{}
	h := newHouse(t, keeping(t, b))
	h.create(t, sandbox.CreateRequest{Name: "box"})
	snap(t, h, "box", sandbox.SnapshotRequest{Name: "taken"})
	for what, c := range map[string]struct {
		id   string
		req  sandbox.SnapshotRequest
		kind sandbox.Kind
	}{
		"nobody":        {"nobody", sandbox.SnapshotRequest{}, sandbox.NotFound},
		"a taken name":  {"box", sandbox.SnapshotRequest{Name: "taken"}, sandbox.Conflict},
		"a bad name":    {"box", sandbox.SnapshotRequest{Name: "../x"}, sandbox.Invalid},
		"an id as name": {"box", sandbox.SnapshotRequest{Name: string(sandbox.NewID())}, sandbox.Invalid},
		"a bad keep":    {"box", sandbox.SnapshotRequest{Keep: "all"}, sandbox.Invalid},
		"a bad ttl":     {"box", sandbox.SnapshotRequest{TTLSeconds: -1}, sandbox.Invalid},
	} {
		if _, err := h.Snapshot(operator(t), c.id, c.req); sandbox.KindOf(err) != c.kind {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, c := range map[string]struct {
		req  sandbox.CreateRequest
		kind sandbox.Kind
	}{
		"no such":          {sandbox.CreateRequest{Snapshot: "other"}, sandbox.NotFound},
		"another template": {sandbox.CreateRequest{Snapshot: "taken", Template: "other"}, sandbox.Invalid},
		"too small":        {sandbox.CreateRequest{Snapshot: "taken", Limits: sandbox.Limits{MemoryBytes: 1}}, sandbox.Invalid},
	} {
		if _, err := h.Create(operator(t), c.req); sandbox.KindOf(err) != c.kind {
			t.Errorf("create, %s: %v", what, err)
		}
	}
	stranger := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "other", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	_, err := h.GetSnapshot(stranger, "taken")
	wantKind(t, err, sandbox.NotFound)
	_, err = h.Create(stranger, sandbox.CreateRequest{Snapshot: "taken"})
	wantKind(t, err, sandbox.NotFound)
	if all, err := h.Snapshots(stranger, sandbox.SnapshotQuery{}); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	_, err = h.Snapshots(t.Context(), sandbox.SnapshotQuery{})
	wantKind(t, err, sandbox.Unauthorized)

	h.world.set("fits", sandbox.Errorf("check", sandbox.Unsupported, "the processor lacks avx512"))
	_, err = h.Create(operator(t), sandbox.CreateRequest{Snapshot: "taken"})
	wantKind(t, err, sandbox.Unsupported)
	_, err = h.Rollback(operator(t), "box", sandbox.RollbackRequest{Snapshot: "taken"})
	wantKind(t, err, sandbox.Unsupported)
	if got, err := h.Get(operator(t), "box"); err != nil || got.State != sandbox.Running {
		t.Errorf("after a refused rollback: %+v, %v", got, err)
	}
	none := newHouse(t)
	none.create(t, sandbox.CreateRequest{Name: "box"})
	_, err = none.Snapshot(operator(t), "box", sandbox.SnapshotRequest{})
	wantKind(t, err, sandbox.Unsupported)
}

// TestSnapshotQuota: what is kept counts, and what is past the quota is not kept.
func TestSnapshotQuota(t *testing.T) {
	b := &memory.Store{}
	q := &fixedQuota{}
	h := newHouse(t, keeping(t, b), func(c *engine.Config) { c.Quotas = q })
	box := h.create(t, sandbox.CreateRequest{Name: "box"})
	h.world.put(box.ID, content{"memory", "disk"})
	first := snap(t, h, "box", sandbox.SnapshotRequest{})
	q.of.SnapshotBytes = first.Stored + first.Stored/2
	_, err := h.Snapshot(operator(t), "box", sandbox.SnapshotRequest{})
	wantKind(t, err, sandbox.Exhausted)
	if used := h.Used(sandbox.MainAccount).SnapshotBytes; used != first.Stored {
		t.Errorf("%d bytes are used, by one of %d", used, first.Stored)
	}
	if all, err := h.Snapshots(operator(t), sandbox.SnapshotQuery{}); err != nil || len(all) != 1 {
		t.Errorf("%+v, %v", all, err)
	}
	if err := h.RemoveSnapshot(operator(t), string(first.ID)); err != nil {
		t.Fatal(err)
	}
	snap(t, h, "box", sandbox.SnapshotRequest{})
}

type fixedQuota struct{ of sandbox.Quota }

func (q *fixedQuota) Quota(context.Context, string) (sandbox.Quota, error) { return q.of, nil }

// TestSnapshotsExpire, also over a restart.
func TestSnapshotsExpire(t *testing.T) {
	keepingBubble(t, func(t *testing.T, h *house, b *memory.Store) {
		h.create(t, sandbox.CreateRequest{Name: "box"})
		snap(t, h, "box", sandbox.SnapshotRequest{Name: "soon", TTLSeconds: 60})
		snap(t, h, "box", sandbox.SnapshotRequest{Name: "later", TTLSeconds: 3600})
		snap(t, h, "box", sandbox.SnapshotRequest{Name: "never"})
		left := func(names ...string) {
			t.Helper()
			all, err := h.Snapshots(operator(t), sandbox.SnapshotQuery{})
			if err != nil || len(all) != len(names) {
				t.Errorf("%+v, %v; want %q", all, err, names)
			}
			for _, n := range names {
				if _, err := h.GetSnapshot(operator(t), n); err != nil {
					t.Error(err)
				}
			}
		}
		after(59 * time.Second)
		left("soon", "later", "never")
		after(2 * time.Second)
		left("later", "never")
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		h.open(t, keeping(t, b))
		defer h.Close()
		after(time.Second)
		left("never")
	})
}

// keepingBubble is bubble with an archive.
func keepingBubble(t *testing.T, f func(t *testing.T, h *house, b *memory.Store)) {
	synctest.Test(t, func(t *testing.T) {
		b := &memory.Store{}
		h := newHouse(t, keeping(t, b))
		defer h.Close()
		f(t, h, b)
	})
}

// TestRollback takes a sandbox back, from each state.
func TestRollback(t *testing.T) {
	b := &memory.Store{}
	h := newHouse(t, keeping(t, b))
	box := h.create(t, sandbox.CreateRequest{Name: "box"})
	h.world.put(box.ID, content{"memory 1", "disk 1"})
	live := snap(t, h, "box", sandbox.SnapshotRequest{Name: "live"})
	snap(t, h, "box", sandbox.SnapshotRequest{Name: "disk", Keep: sandbox.KeepDisk})
	for _, from := range []sandbox.State{sandbox.Running, sandbox.Paused, sandbox.Stopped} {
		for name, want := range map[string]content{"live": {"memory 1", "disk 1"}, "disk": {"", "disk 1"}} {
			if _, err := h.Start(operator(t), "box"); err != nil {
				t.Fatal(err)
			}
			h.world.put(box.ID, content{"memory 2", "disk 2"})
			switch from {
			case sandbox.Paused:
				if _, err := h.Pause(operator(t), "box"); err != nil {
					t.Fatal(err)
				}
			case sandbox.Stopped:
				if _, err := h.Stop(operator(t), "box"); err != nil {
					t.Fatal(err)
				}
			}
			got, err := h.Rollback(operator(t), "box", sandbox.RollbackRequest{Snapshot: name})
			if err != nil || got.ID != box.ID || (got.State == sandbox.Running) != (from == sandbox.Running) {
				t.Fatalf("from %s to %s: %+v, %v", from, name, got, err)
			}
			if from != sandbox.Running {
				wantKind(t, h.RemoveSnapshot(operator(t), name), sandbox.Conflict)
				if f, err := h.Fork(operator(t), "box", sandbox.ForkRequest{Count: 2}); err != nil || len(f.Children) != 2 {
					t.Errorf("a fork of what has yet to wake: %+v, %v", f, err)
				} else if c, _ := h.world.inside(f.Children[1].Sandbox.ID); c != want {
					t.Errorf("its child has %+v inside, want %+v", c, want)
				}
				if again := snap(t, h, "box", sandbox.SnapshotRequest{}); again.Bytes == 0 || again.Parent == "" {
					t.Errorf("a snapshot of what has yet to wake: %+v", again)
				}
				if _, err := h.Awake(operator(t), "box"); err != nil {
					t.Fatal(err)
				}
			}
			if c, lives := h.world.inside(box.ID); !lives || c != want {
				t.Errorf("from %s to %s: inside is %+v, want %+v", from, name, c, want)
			}
		}
	}
	if got, err := h.Get(operator(t), "box"); err != nil || got.Name != "box" || got.Created != box.Created {
		t.Errorf("%+v, %v", got, err)
	}
	h.world.set("restore", errBroken)
	_, err := h.Rollback(operator(t), "box", sandbox.RollbackRequest{Snapshot: string(live.ID)})
	wantKind(t, err, sandbox.Exhausted)
	if got, err := h.Get(operator(t), "box"); err != nil || got.State != sandbox.Paused || got.Reason == "" {
		t.Errorf("%+v, %v", got, err)
	}
	h.world.set("restore", nil)
	if _, err := h.Awake(operator(t), "box"); err != nil {
		t.Fatal(err)
	}
	if c, lives := h.world.inside(box.ID); !lives || c.memory != "memory 1" {
		t.Errorf("inside is %+v", c)
	}
	if err := h.RemoveSnapshot(operator(t), "live"); err != nil {
		t.Error(err)
	}
}

// TestExportImport takes a snapshot to another server.
func TestExportImport(t *testing.T) {
	from := newHouse(t, keeping(t, &memory.Store{}))
	box := from.create(t, sandbox.CreateRequest{Name: "box"})
	from.world.put(box.ID, content{"memory 1", "disk 1"})
	snap(t, from, "box", sandbox.SnapshotRequest{Name: "one"})
	var file bytes.Buffer
	if err := from.ExportSnapshot(operator(t), "one", sandbox.ExportRequest{}, &file); err != nil {
		t.Fatal(err)
	}
	blobs := &memory.Store{}
	to := newHouse(t, keeping(t, blobs))
	stranger := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "other", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	_, err := to.ImportSnapshot(stranger, bytes.NewReader(file.Bytes()), sandbox.ImportRequest{})
	wantKind(t, err, sandbox.Forbidden)
	_, err = to.ImportSnapshot(operator(t), bytes.NewReader(file.Bytes()[:file.Len()/2]), sandbox.ImportRequest{})
	wantKind(t, err, sandbox.Invalid)
	to.world.set("fits", sandbox.Errorf("check", sandbox.Unsupported, "another engine"))
	_, err = to.ImportSnapshot(operator(t), bytes.NewReader(file.Bytes()), sandbox.ImportRequest{})
	wantKind(t, err, sandbox.Unsupported)
	to.world.set("fits", nil)
	await(t, "nothing is left of what was refused", func() bool { return blobs.Len() == 0 })
	got, err := to.ImportSnapshot(operator(t), bytes.NewReader(file.Bytes()), sandbox.ImportRequest{Name: "two", TTLSeconds: 3600})
	if err != nil || got.Name != "two" || got.Sandbox != box.ID || got.Expires.IsZero() || got.Account != sandbox.MainAccount {
		t.Fatalf("%+v, %v", got, err)
	}
	child := to.create(t, sandbox.CreateRequest{Snapshot: "two"})
	if c, _ := to.world.inside(child.ID); c != (content{"memory 1", "disk 1"}) {
		t.Errorf("inside is %+v", c)
	}
	_, err = to.ImportSnapshot(operator(t), bytes.NewReader(file.Bytes()), sandbox.ImportRequest{Name: "two"})
	wantKind(t, err, sandbox.Conflict)
}

// TestSnapshotsKeepTheirTemplate: a root that a snapshot needs is not removed.
func TestSnapshotsKeepTheirTemplate(t *testing.T) {
	h := newHouse(t, keeping(t, &memory.Store{}))
	box := h.create(t, sandbox.CreateRequest{Name: "box"})
	sn := snap(t, h, "box", sandbox.SnapshotRequest{})
	if err := h.Remove(operator(t), "box"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, h.RemoveTemplate(operator(t), "base"), sandbox.Conflict)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h.open(t)
	if !h.templates.pruned(box.Image) {
		t.Error("a restart prunes it")
	}
	if err := h.RemoveSnapshot(operator(t), string(sn.ID)); err != nil {
		t.Fatal(err)
	}
	if err := h.RemoveTemplate(operator(t), "base"); err != nil {
		t.Error(err)
	}
}

// TestClearRemovesWhatIsKept of an account, and nothing of another.
func TestClearRemovesWhatIsKept(t *testing.T) {
	b := &memory.Store{}
	h := newHouse(t, keeping(t, b))
	other := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "other", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	h.create(t, sandbox.CreateRequest{Name: "box"})
	kept := snap(t, h, "box", sandbox.SnapshotRequest{Name: "mine"})
	if _, err := h.Create(other, sandbox.CreateRequest{Name: "box"}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Snapshot(other, "box", sandbox.SnapshotRequest{Name: "mine"}); err != nil {
		t.Fatal(err)
	}
	if err := h.Clear(operator(t), "other"); err != nil {
		t.Fatal(err)
	}
	if all, err := h.Snapshots(other, sandbox.SnapshotQuery{}); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
	if got, err := h.GetSnapshot(operator(t), "mine"); err != nil || got.ID != kept.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if used := h.Used("other"); used != (sandbox.Quota{}) {
		t.Errorf("%+v is still used", used)
	}
}

// TestOperatorRollsAnothersBack: the snapshot is one of the sandbox's account, not
// of the operator's.
func TestOperatorRollsAnothersBack(t *testing.T) {
	h := newHouse(t, keeping(t, &memory.Store{}))
	other := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "other", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	box, err := h.Create(other, sandbox.CreateRequest{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	h.world.put(box.ID, content{"memory 1", "disk 1"})
	if _, err := h.Snapshot(other, "box", sandbox.SnapshotRequest{Name: "then"}); err != nil {
		t.Fatal(err)
	}
	h.world.put(box.ID, content{"memory 2", "disk 2"})
	if _, err := h.Rollback(operator(t), string(box.ID), sandbox.RollbackRequest{Snapshot: "then"}); err != nil {
		t.Fatal(err)
	}
	if c, _ := h.world.inside(box.ID); c.memory != "memory 1" {
		t.Errorf("inside is %+v", c)
	}
	h.create(t, sandbox.CreateRequest{Name: "mine"})
	snap(t, h, "mine", sandbox.SnapshotRequest{Name: "own"})
	_, err = h.Rollback(operator(t), string(box.ID), sandbox.RollbackRequest{Snapshot: "own"})
	wantKind(t, err, sandbox.NotFound)
}
