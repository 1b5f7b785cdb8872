package engine_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/meter"
	"github.com/berth-dev/berth/sandbox"
)

// metered is a house with a meter, in a world with a clock of its own.
func metered(t *testing.T, f func(t *testing.T, h *house)) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, func(c *engine.Config) { c.Meter = newMeter(t, c) })
		defer func() { h.Close() }()
		f(t, h)
	})
}

func newMeter(t *testing.T, c *engine.Config) *meter.Book {
	t.Helper()
	b, err := meter.Open(t.Context(), meter.Config{Records: c.Records})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// restart is a server that is started again on what the one before left.
func (h *house) restart(t *testing.T) {
	t.Helper()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h.open(t, func(c *engine.Config) { c.Meter = newMeter(t, c) })
}

func (h *house) consumed(t *testing.T, q sandbox.UsageQuery) sandbox.UsageReport {
	t.Helper()
	r, err := h.Consumption(operator(t), q)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// near fails unless got is want, give or take one look of the meter.
func near(t *testing.T, what string, got, want, slack int64) {
	t.Helper()
	if got < want-slack || got > want+slack {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func TestConsumption(t *testing.T) {
	metered(t, func(t *testing.T, h *house) {
		h.world.burn = time.Second / 2
		s := h.create(t, sandbox.CreateRequest{Name: "box", Limits: sandbox.Limits{MemoryBytes: 1 << 30}})
		after(100 * time.Second)
		if _, err := h.Pause(operator(t), "box"); err != nil {
			t.Fatal(err)
		}
		after(100 * time.Second) // costs no memory and no processor time
		h.restart(t)
		after(100 * time.Second)
		if _, err := h.Resume(operator(t), "box"); err != nil {
			t.Fatal(err)
		}
		after(50 * time.Second)
		h.restart(t) // it runs on
		after(50 * time.Second)
		check := func(q sandbox.UsageQuery) {
			t.Helper()
			r := h.consumed(t, q)
			near(t, "memory", r.Total.MemoryKiBSeconds, 200<<20, 0)
			near(t, "used memory", r.Total.MemoryUsedKiBSeconds, 200*100<<10, 0)
			if len(r.Rows) != 1 || r.Rows[0].Sandbox != s.ID || r.Rows[0].Consumption != r.Total {
				t.Errorf("rows: %+v", r.Rows)
			}
		}
		check(sandbox.UsageQuery{Sandbox: "box"})
		if err := h.Remove(operator(t), "box"); err != nil {
			t.Fatal(err)
		}
		near(t, "processor time", h.consumed(t, sandbox.UsageQuery{}).Total.CPUMillis, 100_000, 0)
		after(time.Hour)
		h.restart(t)
		check(sandbox.UsageQuery{Sandbox: string(s.ID)})
		near(t, "processor time", h.consumed(t, sandbox.UsageQuery{Account: "main"}).Total.CPUMillis, 100_000, 0)
		if _, err := h.Consumption(operator(t), sandbox.UsageQuery{Sandbox: "box"}); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("the name of one that is gone: %v", err)
		}
	})
}

// TestConsumptionOfOneThatDied counts what it used until it was seen to be gone.
func TestConsumptionOfOneThatDied(t *testing.T) {
	metered(t, func(t *testing.T, h *house) {
		h.world.burn = time.Second
		s := h.create(t, sandbox.CreateRequest{})
		after(42 * time.Second)
		h.world.machines[s.ID].end(driver.Exit{Reason: "killed"})
		after(time.Minute)
		h.wantState(t, s, sandbox.Failed)
		near(t, "processor time", h.consumed(t, sandbox.UsageQuery{}).Total.CPUMillis, 42_000, 0)
	})
}

func TestConsumptionIsAnAccountsOwn(t *testing.T) {
	metered(t, func(t *testing.T, h *house) {
		s := h.create(t, sandbox.CreateRequest{})
		stranger := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "other", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
		if r, err := h.Consumption(stranger, sandbox.UsageQuery{}); err != nil || len(r.Rows) != 0 {
			t.Errorf("a stranger sees %+v, %v", r.Rows, err)
		}
		_, unknown := h.Consumption(stranger, sandbox.UsageQuery{Sandbox: "b23456789abcdefghijk"})
		_, known := h.Consumption(stranger, sandbox.UsageQuery{Sandbox: string(s.ID)})
		hide := func(err error, id string) string { return strings.ReplaceAll(err.Error(), id, "ID") }
		if sandbox.KindOf(known) != sandbox.NotFound || hide(known, string(s.ID)) != hide(unknown, "b23456789abcdefghijk") {
			t.Errorf("another's: %v; nobody's: %v", known, unknown)
		}
		if _, err := h.Consumption(stranger, sandbox.UsageQuery{Account: "main"}); sandbox.KindOf(err) != sandbox.Forbidden {
			t.Errorf("another account: %v", err)
		}
	})
}

func TestBudget(t *testing.T) {
	for action, want := range map[sandbox.Action]sandbox.State{"": sandbox.Paused, sandbox.ActStop: sandbox.Stopped} {
		metered(t, func(t *testing.T, h *house) {
			h.world.burn = time.Second
			s := h.create(t, sandbox.CreateRequest{Budget: &sandbox.Budget{CPUMillis: 10_000, Action: action}})
			id := string(s.ID)
			after(6 * time.Second)
			h.restart(t)
			after(3900 * time.Millisecond)
			h.wantState(t, s, sandbox.Running)
			after(200 * time.Millisecond)
			got := h.wantState(t, s, want)
			if got.Reason != "its budget of 10000 CPU-ms is used up" {
				t.Errorf("reason: %q", got.Reason)
			}
			near(t, "used", h.consumed(t, sandbox.UsageQuery{Sandbox: id}).Total.CPUMillis, 10_000, 50)
			h.restart(t)
			for name, wake := range map[string]func() error{
				"a call": func() error { _, err := h.Awake(operator(t), id); return err },
				"start":  func() error { _, err := h.Start(operator(t), id); return err },
			} {
				if err := wake(); sandbox.KindOf(err) != sandbox.Exhausted || !strings.Contains(sandbox.HintOf(err), "berth update") {
					t.Errorf("%s: %v (%s)", name, err, sandbox.HintOf(err))
				}
			}
			h.wantState(t, s, want)
			if _, err := h.Update(operator(t), id, sandbox.Update{Budget: &sandbox.Budget{CPUMillis: 12_000, Action: action}}); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Start(operator(t), id); err != nil {
				t.Fatal(err)
			}
			after(2100 * time.Millisecond)
			h.wantState(t, s, want)
			near(t, "used", h.consumed(t, sandbox.UsageQuery{Sandbox: id}).Total.CPUMillis, 12_000, 50)
		})
	}
}

// TestBudgetWithoutRoom falls back on keeping the disk, and tries again.
func TestBudgetWithoutRoom(t *testing.T) {
	metered(t, func(t *testing.T, h *house) {
		h.world.burn = time.Second
		h.world.set("pause", sandbox.Errorf("check disk", sandbox.Exhausted, "full"))
		s := h.create(t, sandbox.CreateRequest{Budget: &sandbox.Budget{CPUMillis: 1000}})
		after(3 * time.Second)
		if got := h.wantState(t, s, sandbox.Running); !strings.Contains(got.Reason, "full") {
			t.Errorf("reason: %q", got.Reason)
		}
		h.world.set("pause", nil)
		after(1100 * time.Millisecond)
		h.wantState(t, s, sandbox.Paused)
	})
}

func TestBudgetThatNothingKeeps(t *testing.T) {
	h := newHouse(t)
	_, err := h.Create(operator(t), sandbox.CreateRequest{Budget: &sandbox.Budget{CPUMillis: 1}})
	wantKind(t, err, sandbox.Unsupported)
}

// TestHistory: samples of the time in which it ran, over a pause and a restart, for
// nobody else, and gone with the sandbox.
func TestHistory(t *testing.T) {
	metered(t, func(t *testing.T, h *house) {
		h.world.burn = time.Second / 2
		h.create(t, sandbox.CreateRequest{Name: "box"})
		began := time.Now()
		after(100 * time.Second)
		if _, err := h.Pause(operator(t), "box"); err != nil {
			t.Fatal(err)
		}
		after(500 * time.Second)
		h.restart(t)
		if _, err := h.Resume(operator(t), "box"); err != nil {
			t.Fatal(err)
		}
		after(100 * time.Second)
		sum := func(q sandbox.HistoryQuery) (seconds float64, n int) {
			t.Helper()
			all, err := h.History(operator(t), "box", q)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range all {
				seconds += s.Seconds
				if s.CPUMilli < 450 || s.CPUMilli > 550 || s.MemoryBytes != 100<<20 {
					t.Errorf("%+v", s)
				}
			}
			return seconds, len(all)
		}
		whole, n := sum(sandbox.HistoryQuery{})
		if whole < 195 || whole > 205 || n < 20 {
			t.Errorf("%d samples of %.0f seconds", n, whole)
		}
		if joined, few := sum(sandbox.HistoryQuery{Step: time.Minute}); joined != whole || few > 6 {
			t.Errorf("%d samples of %.0f seconds", few, joined)
		}
		if first, _ := sum(sandbox.HistoryQuery{To: began.Add(300 * time.Second)}); first < 95 || first > 105 {
			t.Errorf("%.0f seconds before the pause", first)
		}
		_, err := h.History(operator(t), "box", sandbox.HistoryQuery{Step: time.Millisecond})
		wantKind(t, err, sandbox.Invalid)
		stranger := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "other", Scopes: []sandbox.Scope{sandbox.ScopeRead}})
		_, err = h.History(stranger, "box", sandbox.HistoryQuery{})
		wantKind(t, err, sandbox.NotFound)
		if err := h.Remove(operator(t), "box"); err != nil {
			t.Fatal(err)
		}
		h.restart(t)
		if left, err := h.records.List(operator(t), "meter/trace/", "", 0); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	})
}
