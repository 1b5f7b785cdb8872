package engine_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// shelf is volumes that hold nothing.
type shelf struct {
	engine.Volumes // what they hold is not asked for here
	mu             sync.Mutex
	there          map[sandbox.ID]bool
	broken         error // of what makes one
}

func (s *shelf) Make(_ context.Context, id sandbox.ID, _ int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken == nil {
		s.there[id] = true
	}
	return s.broken
}

func (s *shelf) Folder(_ context.Context, id sandbox.ID) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there[id] {
		return "", sandbox.Errorf("mount", sandbox.NotFound, "no volume %s", id)
	}
	return "/volumes/" + string(id), nil
}

func (s *shelf) Stored(_ context.Context, id sandbox.ID) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.there[id] {
		return 0, sandbox.Errorf("measure", sandbox.NotFound, "no volume %s", id)
	}
	return 5000, nil
}

func (s *shelf) Remove(_ context.Context, id sandbox.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.there, id)
	return nil
}

func (s *shelf) Tidy() (map[sandbox.ID]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	there := map[sandbox.ID]bool{}
	for id := range s.there {
		there[id] = true
	}
	return there, nil
}

// mounting notes what machines are to be made with.
type mounting struct {
	*world
	mu    sync.Mutex
	specs map[string][]driver.Mount // by the verb
}

func (m *mounting) note(verb string, s driver.Spec) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.specs[verb] = s.Mounts
}

func (m *mounting) Create(ctx context.Context, s driver.Spec) (driver.Machine, error) {
	m.note("create", s)
	return m.world.Create(ctx, s)
}

func (m *mounting) Resume(ctx context.Context, s driver.Spec, saved []byte) (driver.Machine, error) {
	m.note("resume", s)
	return m.world.Resume(ctx, s, saved)
}

func (m *mounting) Fork(ctx context.Context, dm driver.Machine, specs []driver.Spec) (driver.Forks, error) {
	m.note("fork", specs[0])
	return m.world.Fork(ctx, dm, specs)
}

func volumeHouse(t *testing.T) (*house, *shelf, *mounting) {
	s, m := &shelf{there: map[sandbox.ID]bool{}}, &mounting{specs: map[string][]driver.Mount{}}
	h := newHouse(t, func(c *engine.Config) {
		m.world = c.Drivers[0].(*world)
		c.Drivers, c.Volumes = []driver.Driver{m}, s
	})
	return h, s, m
}

func TestVolumes(t *testing.T) {
	h, shelf, _ := volumeHouse(t)
	ctx := operator(t)
	v, err := h.CreateVolume(ctx, sandbox.VolumeRequest{Name: "data"})
	if err != nil || v.SizeBytes != sandbox.DefaultVolume {
		t.Fatalf("%+v, %v", v, err)
	}
	_, err = h.CreateVolume(ctx, sandbox.VolumeRequest{Name: "data"})
	wantKind(t, err, sandbox.Conflict)
	_, err = h.CreateVolume(ctx, sandbox.VolumeRequest{Name: "/etc"})
	wantKind(t, err, sandbox.Invalid)
	shelf.broken = errBroken
	_, err = h.CreateVolume(ctx, sandbox.VolumeRequest{Name: "other"})
	wantKind(t, err, sandbox.Exhausted)
	for _, given := range []string{"data", string(v.ID)} {
		if got, err := h.Volume(ctx, given); err != nil || got != v {
			t.Errorf("%s: %+v, %v", given, got, err)
		}
	}
	if all, err := h.Volumes(ctx); err != nil || len(all) != 1 || all[0] != v {
		t.Errorf("%+v, %v", all, err)
	}
	stranger := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "other", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	for _, given := range []string{"data", string(v.ID)} {
		_, err := h.Volume(stranger, given)
		wantKind(t, err, sandbox.NotFound)
		wantKind(t, h.RemoveVolume(stranger, given), sandbox.NotFound)
		_, err = h.Create(stranger, sandbox.CreateRequest{Volumes: []sandbox.VolumeMount{{Volume: given, Path: "/data"}}})
		wantKind(t, err, sandbox.NotFound)
	}
	if err := h.RemoveVolume(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, h.RemoveVolume(ctx, "data"), sandbox.NotFound)
	h.nothingLeft(t)
}

// TestVolumesInSandboxes: whichever way its machine is made, a sandbox has its
// volumes, which stay for as long as it does.
func TestVolumesInSandboxes(t *testing.T) {
	h, _, made := volumeHouse(t)
	ctx := operator(t)
	v, err := h.CreateVolume(ctx, sandbox.VolumeRequest{Name: "data"})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"data", "/", "/proc/x", "/etc", "/usr/../etc"} {
		_, err := h.Create(ctx, sandbox.CreateRequest{Volumes: []sandbox.VolumeMount{{Volume: "data", Path: path}}})
		wantKind(t, err, sandbox.Invalid)
	}
	twice := []sandbox.VolumeMount{{Volume: "data", Path: "/data"}, {Volume: "data", Path: "/data/in"}}
	_, err = h.Create(ctx, sandbox.CreateRequest{Volumes: twice})
	wantKind(t, err, sandbox.Invalid)
	box := h.create(t, sandbox.CreateRequest{Volumes: []sandbox.VolumeMount{{Volume: "data", Path: "/data/", ReadOnly: true}}})
	if want := []sandbox.VolumeMount{{Volume: string(v.ID), Path: "/data", ReadOnly: true}}; !slices.Equal(box.Volumes, want) {
		t.Errorf("it has %+v", box.Volumes)
	}
	if _, err := h.Pause(ctx, string(box.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Resume(ctx, string(box.ID)); err != nil {
		t.Fatal(err)
	}
	f, err := h.Fork(ctx, string(box.ID), sandbox.ForkRequest{Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	want := []driver.Mount{{Source: "/volumes/" + string(v.ID), Target: "/data", ReadOnly: true}}
	for _, verb := range []string{"create", "resume", "fork"} {
		if got := made.specs[verb]; !slices.Equal(got, want) {
			t.Errorf("%s: %+v", verb, got)
		}
	}
	for _, id := range []sandbox.ID{box.ID, f.Children[0].Sandbox.ID} {
		wantKind(t, h.RemoveVolume(ctx, "data"), sandbox.Conflict)
		if err := h.Remove(ctx, string(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.RemoveVolume(ctx, "data"); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

// TestVolumesCutOff: a server that was killed while it made or removed a volume
// leaves none on record.
func TestVolumesCutOff(t *testing.T) {
	h, shelf, made := volumeHouse(t)
	ctx := operator(t)
	for _, name := range []string{"kept", "lost"} {
		if _, err := h.CreateVolume(ctx, sandbox.VolumeRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	lost, err := h.Volume(ctx, "lost")
	if err != nil {
		t.Fatal(err)
	}
	if err := shelf.Remove(ctx, lost.ID); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h.open(t, func(c *engine.Config) { c.Drivers, c.Volumes = []driver.Driver{made}, shelf })
	if all, err := h.Volumes(ctx); err != nil || len(all) != 1 || all[0].Name != "kept" {
		t.Errorf("%+v, %v", all, err)
	}
	if _, err := h.CreateVolume(ctx, sandbox.VolumeRequest{Name: "lost"}); err != nil {
		t.Errorf("the name is taken still: %v", err)
	}
}

// TestVolumesAreMetered: from their making to their removal, while no server runs too.
func TestVolumesAreMetered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{there: map[sandbox.ID]bool{}}
		with := func(c *engine.Config) { c.Volumes, c.Meter = s, newMeter(t, c) }
		h := newHouse(t, with)
		defer func() { h.Close() }()
		v, err := h.CreateVolume(operator(t), sandbox.VolumeRequest{Name: "data"})
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, want int64, state sandbox.State) {
			t.Helper()
			r := h.consumed(t, sandbox.UsageQuery{Sandbox: string(v.ID)})
			near(t, what, r.Total.DiskKBSeconds, want, 60) // of 5 kB, up to two looks
			if len(r.Rows) != 1 || r.Rows[0].Volume != v.ID || r.Rows[0].Sandbox != "" || r.Rows[0].Name != "data" || r.Rows[0].State != state || r.Total.MemoryKiBSeconds != 0 {
				t.Errorf("%s: %+v", what, r.Rows)
			}
		}
		after(100 * time.Second)
		check("kept", 500, "")
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		after(100 * time.Second)
		h.open(t, with)
		after(100 * time.Second)
		check("kept over a restart", 1500, "")
		if err := h.RemoveVolume(operator(t), "data"); err != nil {
			t.Fatal(err)
		}
		after(100 * time.Second)
		check("removed", 1500, sandbox.Deleted)
		stranger := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "other", Scopes: []sandbox.Scope{sandbox.ScopeRead}})
		_, err = h.Consumption(stranger, sandbox.UsageQuery{Sandbox: string(v.ID)})
		wantKind(t, err, sandbox.NotFound)
	})
}
