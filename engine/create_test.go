package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

func TestCreate(t *testing.T) {
	h := newHouse(t)
	s := h.create(t, sandbox.CreateRequest{Metadata: map[string]string{"a": "b"}})
	if s.State != sandbox.Running || s.Template != "base" || s.Class != "puppet" || s.Limits != sandbox.DefaultLimits() || s.Image == "" {
		t.Errorf("created %+v", s)
	}
	got, err := h.Get(operator(t), string(s.ID))
	if err != nil || got.ID != s.ID || !got.Created.Equal(s.Created) || got.Metadata["a"] != "b" {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := h.Remove(operator(t), string(s.ID)); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
	_, err = h.Get(operator(t), string(s.ID))
	wantKind(t, err, sandbox.NotFound)
}

// TestCreateFailsAtEachStep breaks one step at a time.
func TestCreateFailsAtEachStep(t *testing.T) {
	nth := func(n int) func(int) error {
		return func(i int) error {
			if i == n {
				return errBroken
			}
			return nil
		}
	}
	before := func(n int) func(int, record.Txn) error {
		return func(i int, _ record.Txn) error { return nth(n)(i) }
	}
	for name, broken := range map[string]func(*house){
		"template":                  func(h *house) { delete(h.templates.all, "base") },
		"first commit":              func(h *house) { h.records.before = before(1) },
		"first commit, but applied": func(h *house) { h.records.after = nth(1) },
		"driver":                    func(h *house) { h.world.set("create", errBroken) },
		"second commit":             func(h *house) { h.records.before = before(2) },
		"second commit but applied": func(h *house) { h.records.after = nth(2) },
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t)
			broken(h)
			_, err := h.Create(operator(t), sandbox.CreateRequest{})
			want := sandbox.Exhausted
			if name == "template" {
				want = sandbox.NotFound
			}
			wantKind(t, err, want)
			if !strings.HasPrefix(err.Error(), "create ") || strings.Contains(err.Error(), "undoing") {
				t.Errorf("text: %v", err)
			}
			h.nothingLeft(t)
		})
	}
}

// TestCreateThatCannotBeUndone keeps a machine that cannot be stopped with its
// sandbox, so that it can be removed later.
func TestCreateThatCannotBeUndone(t *testing.T) {
	h := newHouse(t)
	h.records.before = func(n int, _ record.Txn) error {
		if n == 2 {
			return errBroken
		}
		return nil
	}
	h.world.set("stop", errBroken)
	_, err := h.Create(operator(t), sandbox.CreateRequest{})
	wantKind(t, err, sandbox.Exhausted)
	page, err := h.List(operator(t), sandbox.ListQuery{})
	if err != nil || len(page.Sandboxes) != 1 || page.Sandboxes[0].State != sandbox.Failed {
		t.Fatalf("listed %+v, %v", page, err)
	}
	id := string(page.Sandboxes[0].ID)
	wantKind(t, h.Remove(operator(t), id), sandbox.Exhausted)
	h.world.set("stop", nil)
	if err := h.Remove(operator(t), id); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

// blocked starts a create that waits inside the driver.
func blocked(ctx context.Context, h *house) (id string, result chan error) {
	h.world.enter, h.world.leave = make(chan sandbox.ID), make(chan struct{})
	result = make(chan error, 1)
	go func() {
		_, err := h.Create(ctx, sandbox.CreateRequest{})
		result <- err
	}()
	return string(<-h.world.enter), result
}

func TestCreateWhoseCallerGoes(t *testing.T) {
	h := newHouse(t)
	ctx, cancel := context.WithCancel(operator(t))
	_, result := blocked(ctx, h)
	cancel()
	wantKind(t, <-result, sandbox.Unavailable)
	h.nothingLeft(t)
}

func TestRemoveEndsACreate(t *testing.T) {
	h := newHouse(t)
	id, result := blocked(operator(t), h)
	if s, err := h.Get(operator(t), id); err != nil || s.State != sandbox.Starting {
		t.Fatalf("got %+v, %v", s, err)
	}
	_, err := h.Processes(operator(t), id)
	wantKind(t, err, sandbox.Conflict)
	if err := h.Remove(operator(t), id); err != nil {
		t.Fatal(err)
	}
	wantKind(t, <-result, sandbox.Conflict)
	h.nothingLeft(t)
}

func TestCloseEndsACreate(t *testing.T) {
	h := newHouse(t)
	_, result := blocked(operator(t), h)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	err := <-result
	wantKind(t, err, sandbox.Unavailable)
	if !strings.Contains(err.Error(), "shutting down") {
		t.Errorf("text: %v", err)
	}
	h.nothingLeft(t)
	_, err = h.Create(operator(t), sandbox.CreateRequest{})
	wantKind(t, err, sandbox.Unavailable)
}

func TestCreatesWaitTheirTurn(t *testing.T) {
	h := newHouse(t, func(c *engine.Config) { c.Creates, c.Queue = 1, 1 })
	_, first := blocked(operator(t), h)
	ctx, cancel := context.WithCancel(operator(t))
	second := make(chan error, 1)
	go func() {
		_, err := h.Create(ctx, sandbox.CreateRequest{})
		second <- err
	}()
	await(t, "the second create waits", func() bool {
		st, err := h.Status(operator(t))
		return err == nil && st.Creating == 1 && st.Queued == 1
	})
	_, err := h.Create(operator(t), sandbox.CreateRequest{})
	wantKind(t, err, sandbox.Exhausted)
	if sandbox.HintOf(err) == "" {
		t.Error("no hint")
	}
	cancel()
	wantKind(t, <-second, sandbox.Unavailable)
	close(h.world.leave)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}

func TestManyAtOnce(t *testing.T) {
	h := newHouse(t, func(c *engine.Config) { c.Creates = 4 })
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			s, err := h.Create(operator(t), sandbox.CreateRequest{})
			if err != nil {
				t.Error(err)
				return
			}
			if err := h.Remove(operator(t), string(s.ID)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	h.nothingLeft(t)
}

func TestBadCreates(t *testing.T) {
	h := newHouse(t)
	big := strings.Repeat("x", sandbox.MaxSandboxEnvBytes)
	for name, r := range map[string]struct {
		req  sandbox.CreateRequest
		kind sandbox.Kind
	}{
		"template unknown":   {sandbox.CreateRequest{Template: "nope"}, sandbox.NotFound},
		"template malformed": {sandbox.CreateRequest{Template: "../etc"}, sandbox.Invalid},
		"class":              {sandbox.CreateRequest{Class: "vm"}, sandbox.Invalid},
		"limit negative":     {sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: -1}}, sandbox.Invalid},
		"limit small":        {sandbox.CreateRequest{Limits: sandbox.Limits{CPUMilli: 1}}, sandbox.Invalid},
		"env name":           {sandbox.CreateRequest{Env: map[string]string{"A=": ""}}, sandbox.Invalid},
		"env size":           {sandbox.CreateRequest{Env: map[string]string{"A": big}}, sandbox.Invalid},
		"metadata key":       {sandbox.CreateRequest{Metadata: map[string]string{"": "x"}}, sandbox.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := h.Create(operator(t), r.req)
			wantKind(t, err, r.kind)
			h.nothingLeft(t)
		})
	}
}
