package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// quotas allows accounts what a test says; an account that is not in it has ended.
type quotas struct {
	mu  sync.Mutex
	all map[string]sandbox.Quota
}

func (q *quotas) Quota(_ context.Context, account string) (sandbox.Quota, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	of, has := q.all[account]
	if !has {
		return of, sandbox.Errorf("", sandbox.Forbidden, "the account has ended")
	}
	return of, nil
}

func (q *quotas) end(account string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.all, account)
}

func quotaHouse(t *testing.T, of sandbox.Quota) (*house, *quotas, func(*engine.Config)) {
	q := &quotas{all: map[string]sandbox.Quota{"a": of, "main": {}}}
	use := func(c *engine.Config) { c.Quotas, c.Queue = q, 1000 }
	return newHouse(t, use), q, use
}

func TestQuotaHoldsUnderConcurrency(t *testing.T) {
	h, _, _ := quotaHouse(t, sandbox.Quota{Sandboxes: 10})
	errs := make([]error, 200)
	var wg sync.WaitGroup
	for i := range errs {
		wg.Go(func() { _, errs[i] = h.Create(member(t, "a"), sandbox.CreateRequest{}) })
	}
	wg.Wait()
	made := 0
	for _, err := range errs {
		if err == nil {
			made++
			continue
		}
		wantKind(t, err, sandbox.Exhausted)
		if !strings.Contains(err.Error(), "10 used, 1 more asked for, 10 allowed") {
			t.Fatal(err)
		}
	}
	if made != 10 || len(h.world.ids()) != 10 {
		t.Errorf("%d were made, %d run", made, len(h.world.ids()))
	}
}

func TestQuotaOfEachKind(t *testing.T) {
	small := sandbox.Limits{CPUMilli: 100, MemoryBytes: 64 << 20, DiskBytes: 16 << 20}
	for name, of := range map[string]sandbox.Quota{
		"cpu_milli": {CPUMilli: 250}, "memory_bytes": {MemoryBytes: 150 << 20}, "disk_bytes": {DiskBytes: 40 << 20}, "sandboxes": {Sandboxes: 2},
	} {
		t.Run(name, func(t *testing.T) {
			h, _, use := quotaHouse(t, of)
			ctx := member(t, "a")
			create := func() (sandbox.Sandbox, error) {
				return h.Create(ctx, sandbox.CreateRequest{Limits: small})
			}
			s, err := create()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := create(); err != nil {
				t.Fatal(err)
			}
			_, err = create()
			wantKind(t, err, sandbox.Exhausted)
			if !strings.Contains(err.Error(), name) {
				t.Error(err)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h.open(t, use) // the sums come from the records
			_, err = create()
			wantKind(t, err, sandbox.Exhausted)
			if err := h.Remove(ctx, string(s.ID)); err != nil {
				t.Fatal(err)
			}
			if _, err := create(); err != nil {
				t.Error(err)
			}
			if _, err := h.Create(operator(t), sandbox.CreateRequest{}); err != nil {
				t.Errorf("another account: %v", err)
			}
		})
	}
}

func TestQuotaOfWakingAndGrowing(t *testing.T) {
	h, q, _ := quotaHouse(t, sandbox.Quota{Sandboxes: 1, MemoryBytes: 1 << 30})
	ctx := member(t, "a")
	create := sandbox.CreateRequest{Limits: sandbox.Limits{MemoryBytes: 512 << 20}}
	s, err := h.Create(ctx, create)
	if err != nil {
		t.Fatal(err)
	}
	grow := func(id sandbox.ID, bytes int64) error {
		_, err := h.Update(ctx, string(id), sandbox.Update{Limits: &sandbox.Limits{MemoryBytes: bytes}})
		return err
	}
	wantKind(t, grow(s.ID, 2<<30), sandbox.Exhausted)
	if err := grow(s.ID, 1<<30); err != nil {
		t.Fatal(err)
	}
	if err := grow(s.ID, 512<<20); err != nil || h.Used("a").MemoryBytes != 512<<20 {
		t.Fatal(err, h.Used("a"))
	}
	if _, err := h.Pause(ctx, string(s.ID)); err != nil {
		t.Fatal(err)
	}
	if used := h.Used("a"); used != (sandbox.Quota{DiskBytes: s.Limits.DiskBytes}) {
		t.Errorf("one that is paused uses %+v", used)
	}
	other, err := h.Create(ctx, create)
	if err != nil {
		t.Fatal(err)
	}
	for name, wake := range map[string]func(context.Context, string) (sandbox.Sandbox, error){"resume": h.Resume, "start": h.Start, "call": h.Awake} {
		if _, err := wake(ctx, string(s.ID)); sandbox.KindOf(err) != sandbox.Exhausted {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := h.Get(ctx, string(s.ID)); err != nil || got.State != sandbox.Paused {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := h.Stop(ctx, string(other.ID)); err != nil {
		t.Fatal(err)
	}
	h.world.set("resume", errBroken)
	if _, err := h.Resume(ctx, string(s.ID)); err == nil {
		t.Fatal("a broken driver resumes")
	}
	if used := h.Used("a"); used.Sandboxes != 0 {
		t.Errorf("a resume that came to nothing uses %+v", used)
	}
	h.world.set("resume", nil)
	if _, err := h.Resume(ctx, string(s.ID)); err != nil {
		t.Fatal(err)
	}
	q.end("a")
	_, err = h.Create(ctx, create)
	wantKind(t, err, sandbox.Forbidden)
}

func TestCreateThatFailsGivesBack(t *testing.T) {
	h, _, _ := quotaHouse(t, sandbox.Quota{Sandboxes: 1})
	ctx := member(t, "a")
	h.world.set("create", errBroken)
	for range 3 {
		if _, err := h.Create(ctx, sandbox.CreateRequest{}); err == nil || strings.Contains(err.Error(), "quota") {
			t.Fatal(err)
		}
		if _, err := h.Create(ctx, sandbox.CreateRequest{Template: "missing"}); sandbox.KindOf(err) != sandbox.NotFound {
			t.Fatal(err)
		}
	}
	if used := h.Used("a"); used != (sandbox.Quota{}) {
		t.Errorf("used: %+v", used)
	}
}

// TestClear removes an account's things while more of them are being made.
func TestClear(t *testing.T) {
	h, q, _ := quotaHouse(t, sandbox.Quota{})
	ctx := member(t, "a")
	if _, err := h.CreateWebhook(ctx, sandbox.WebhookRequest{URL: "http://127.0.0.1:9/"}); err != nil {
		t.Fatal(err)
	}
	paused, err := h.Create(ctx, sandbox.CreateRequest{Name: "n"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Pause(ctx, string(paused.ID)); err != nil {
		t.Fatal(err)
	}
	kept := h.create(t, sandbox.CreateRequest{Name: "n"})
	var wg sync.WaitGroup
	for range 30 {
		wg.Go(func() { _, _ = h.Create(ctx, sandbox.CreateRequest{}) })
	}
	q.end("a")
	if err := h.Clear(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if page, err := h.List(ctx, sandbox.ListQuery{}); err != nil || len(page.Sandboxes) > 0 {
		t.Errorf("left: %+v, %v", page, err)
	}
	if err := h.Clear(t.Context(), "a"); err != nil { // again
		t.Error(err)
	}
	if err := h.Remove(operator(t), string(kept.ID)); err != nil {
		t.Error(err)
	}
	h.nothingLeft(t)
}

// TestForkWithinQuota forks past a bound, and with a name that is taken: what comes
// to nothing uses nothing.
func TestForkWithinQuota(t *testing.T) {
	h, _, _ := quotaHouse(t, sandbox.Quota{Sandboxes: 4, ForkAtOnce: 3})
	ctx := member(t, "a")
	s, err := h.Create(ctx, sandbox.CreateRequest{Name: "taken"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Fork(ctx, string(s.ID), sandbox.ForkRequest{Count: 4})
	wantKind(t, err, sandbox.Exhausted)
	got, err := h.Fork(ctx, string(s.ID), sandbox.ForkRequest{Count: 2, Names: []string{"taken", "free"}})
	if err != nil || len(got.Children) != 2 || h.Used("a").Sandboxes != 2 {
		t.Fatalf("%+v, %v, used %+v", got, err, h.Used("a"))
	}
	got, err = h.Fork(ctx, string(s.ID), sandbox.ForkRequest{Count: 3})
	made := 0
	for _, c := range got.Children {
		if c.Err == nil {
			made++
		}
	}
	if err != nil || made != 2 || h.Used("a").Sandboxes != 4 {
		t.Fatalf("%+v, %v, used %+v", got, err, h.Used("a"))
	}
}
