package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

func TestListPages(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	h := newHouse(t, func(c *engine.Config) { c.Clock = func() time.Time { now = now.Add(time.Second); return now } })
	var want []sandbox.ID
	for i := range 7 {
		s := h.create(t, sandbox.CreateRequest{Metadata: map[string]string{"odd": fmt.Sprint(i % 2)}})
		want = append([]sandbox.ID{s.ID}, want...)
	}
	for limit := 1; limit <= 8; limit++ {
		if got := collect(t, h, sandbox.ListQuery{Limit: limit}); !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v, want %v", limit, got, want)
		}
	}
	odd := []sandbox.ID{want[1], want[3], want[5]}
	if got := collect(t, h, sandbox.ListQuery{Limit: 2, Metadata: map[string]string{"odd": "1"}}); !slices.Equal(got, odd) {
		t.Errorf("odd ones: %v, want %v", got, odd)
	}
	for name, q := range map[string]sandbox.ListQuery{
		"state": {States: []sandbox.State{sandbox.Failed}}, "template": {Template: "other"}, "metadata": {Metadata: map[string]string{"x": ""}},
	} {
		if got := collect(t, h, q); len(got) != 0 {
			t.Errorf("by %s: %v, want none", name, got)
		}
	}
	if got := collect(t, h, sandbox.ListQuery{States: []sandbox.State{sandbox.Running}, Template: "base"}); len(got) != 7 {
		t.Errorf("running from base: %d, want 7", len(got))
	}
}

// collect reads all pages.
func collect(t *testing.T, h *house, q sandbox.ListQuery) (ids []sandbox.ID) {
	t.Helper()
	for {
		p, err := h.List(operator(t), q)
		if err != nil {
			t.Fatal(err)
		}
		if q.Limit > 0 && len(p.Sandboxes) > q.Limit {
			t.Fatalf("a page of %d, want at most %d", len(p.Sandboxes), q.Limit)
		}
		for _, s := range p.Sandboxes {
			ids = append(ids, s.ID)
		}
		if p.Next == "" {
			return ids
		}
		q.After = p.Next
	}
}

func TestBadLists(t *testing.T) {
	h := newHouse(t)
	for name, q := range map[string]sandbox.ListQuery{
		"limit": {Limit: -1}, "large limit": {Limit: 1001}, "state": {States: []sandbox.State{"asleep"}},
		"cursor": {After: "zzz"}, "cursor with a path": {After: "0000000000000000-../../../../../../../"},
	} {
		_, err := h.List(operator(t), q)
		if sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}
