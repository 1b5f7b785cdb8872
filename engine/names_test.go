package engine_test

import (
	"sync"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// TestGetOrCreateAtOnce: of 200 at once one makes the sandbox.
func TestGetOrCreateAtOnce(t *testing.T) {
	h := newHouse(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[sandbox.ID]int{}
	for range 200 {
		wg.Go(func() {
			s, err := h.Create(operator(t), sandbox.CreateRequest{Name: "one", Get: true})
			if err != nil || s.State != sandbox.Running || s.Name != "one" {
				t.Errorf("%+v, %v", s, err)
			}
			mu.Lock()
			seen[s.ID]++
			mu.Unlock()
		})
	}
	wg.Wait()
	if len(seen) != 1 || len(h.world.ids()) != 1 {
		t.Fatalf("ids %v, machines %v", seen, h.world.ids())
	}
	if err := h.Remove(operator(t), "one"); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

// TestCreateOfOneNameAtOnce: without get one succeeds, the others are told.
func TestCreateOfOneNameAtOnce(t *testing.T) {
	h := newHouse(t)
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() { _, errs[i] = h.Create(operator(t), sandbox.CreateRequest{Name: "one"}) })
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
		} else {
			wantKind(t, err, sandbox.Conflict)
			if sandbox.HintOf(err) == "" {
				t.Error("no hint")
			}
		}
	}
	if made != 1 || len(h.world.ids()) != 1 {
		t.Errorf("%d made, machines %v", made, h.world.ids())
	}
}

func TestNames(t *testing.T) {
	h := newHouse(t)
	s := h.create(t, sandbox.CreateRequest{Name: "web", Tags: []string{"a", "b"}})
	if got, err := h.Get(operator(t), "web"); err != nil || got.ID != s.ID {
		t.Errorf("get by name: %+v, %v", got, err)
	}
	if got, err := h.Pause(operator(t), "web"); err != nil || got.State != sandbox.Paused {
		t.Errorf("pause by name: %+v, %v", got, err)
	}
	if got, err := h.Create(operator(t), sandbox.CreateRequest{Name: "web", Get: true}); err != nil || got.ID != s.ID || got.State != sandbox.Paused {
		t.Errorf("get or create of a paused one: %+v, %v", got, err)
	}
	for q, want := range map[*sandbox.ListQuery]int{
		{Name: "web"}: 1, {Name: "other"}: 0, {Tags: []string{"b", "a"}}: 1, {Tags: []string{"a", "c"}}: 0,
	} {
		if page, err := h.List(operator(t), *q); err != nil || len(page.Sandboxes) != want {
			t.Errorf("list %+v: %d, %v", q, len(page.Sandboxes), err)
		}
	}
	_, err := h.Get(operator(t), "nobody")
	wantKind(t, err, sandbox.NotFound)
	for _, bad := range []string{string(sandbox.NewID()), "UPPER", "-x", "a/b", "../x"} {
		_, err := h.Create(operator(t), sandbox.CreateRequest{Name: bad})
		wantKind(t, err, sandbox.Invalid)
	}
	_, err = h.Create(operator(t), sandbox.CreateRequest{Get: true})
	wantKind(t, err, sandbox.Invalid)
}

// TestAFailedOneLeavesItsName: the name is free for the next.
func TestAFailedOneLeavesItsName(t *testing.T) {
	h := newHouse(t)
	first := h.create(t, sandbox.CreateRequest{Name: "web"})
	h.world.crash(first.ID, "out of memory")
	await(t, "the first is failed", func() bool {
		got, err := h.Get(operator(t), string(first.ID))
		return err == nil && got.State == sandbox.Failed
	})
	second, err := h.Create(operator(t), sandbox.CreateRequest{Name: "web", Get: true})
	if err != nil || second.ID == first.ID {
		t.Fatalf("%+v, %v", second, err)
	}
	if err := h.Remove(operator(t), string(first.ID)); err != nil {
		t.Fatal(err)
	}
	if got, err := h.Get(operator(t), "web"); err != nil || got.ID != second.ID {
		t.Errorf("the second lost its name: %+v, %v", got, err)
	}
}

// TestGetOrCreateThatFails: who waited tries by itself.
func TestGetOrCreateThatFails(t *testing.T) {
	h := newHouse(t)
	h.world.set("create", errBroken)
	_, err := h.Create(operator(t), sandbox.CreateRequest{Name: "web", Get: true})
	wantKind(t, err, sandbox.Exhausted)
	h.nothingLeft(t)
	h.world.set("create", nil)
	h.create(t, sandbox.CreateRequest{Name: "web", Get: true})
}

func TestUpdate(t *testing.T) {
	h := newHouse(t)
	s := h.create(t, sandbox.CreateRequest{Name: "web", Metadata: map[string]string{"a": "1", "b": "2"}, Type: "lite"})
	if s.Limits.MemoryBytes != 256<<20 || s.Limits.CPUMilli != 63 || s.Limits.DiskBytes != 2e9 || s.Type != "lite" {
		t.Errorf("lite: %+v", s.Limits)
	}
	three, no := "3", false
	got, err := h.Update(operator(t), "web", sandbox.Update{Metadata: map[string]*string{"a": nil, "c": &three}, Tags: &[]string{"x"}, Env: &map[string]string{"E": "2"}, Wake: &no, Type: "basic"})
	if err != nil {
		t.Fatal(err)
	}
	if got.Metadata["c"] != "3" || len(got.Metadata) != 2 || got.Tags[0] != "x" || got.Env["E"] != "2" || *got.Wake || got.Limits.MemoryBytes != 1<<30 {
		t.Errorf("updated: %+v", got)
	}
	h.world.mu.Lock()
	limits := h.world.machines[s.ID].limits
	h.world.mu.Unlock()
	if limits != got.Limits {
		t.Errorf("the machine has %+v", limits)
	}
	if again, err := h.Get(operator(t), "web"); err != nil || again.Limits != got.Limits {
		t.Errorf("on record: %+v, %v", again, err)
	}
	for name, u := range map[string]sandbox.Update{
		"type": {Type: "huge"}, "limits": {Limits: &sandbox.Limits{CPUMilli: 1}}, "tags": {Tags: &[]string{"a b"}}, "env": {Env: &map[string]string{"=": "x"}},
		"idle": {Idle: &sandbox.Idle{TimeoutSeconds: -1}}, "action": {Lifetime: &sandbox.Lifetime{Seconds: 1, Action: "explode"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Update(operator(t), "web", u)
			wantKind(t, err, sandbox.Invalid)
		})
	}
}
