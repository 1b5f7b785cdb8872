package engine_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// drive is a disk of 100 GiB of which a test says what is free.
type drive struct{ free atomic.Int64 }

func (d *drive) Free() (free, total int64, err error) { return d.free.Load(), 100 << 30, nil }

func TestLowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &drive{}
		d.free.Store(50 << 30)
		h := newHouse(t, func(c *engine.Config) { c.Room = engine.RoomConfig{Of: d, Share: 0.05} })
		defer h.Close()
		runs, asleep := h.create(t, sandbox.CreateRequest{}), h.create(t, sandbox.CreateRequest{})
		if _, err := h.Pause(operator(t), string(asleep.ID)); err != nil {
			t.Fatal(err)
		}
		d.free.Store(4 << 30) // of the 5 GiB that must stay
		after(20 * time.Second)
		for name, begin := range map[string]func() error{
			"create": func() error { _, err := h.Create(operator(t), sandbox.CreateRequest{}); return err },
			"fork": func() error {
				_, err := h.Fork(operator(t), string(runs.ID), sandbox.ForkRequest{Count: 1})
				return err
			},
			"build": func() error {
				_, err := h.BuildTemplate(operator(t), sandbox.BuildRequest{Name: "x", From: "distribution:bookworm"}, nil)
				return err
			},
			"wake": func() error { _, err := h.Start(operator(t), string(asleep.ID)); return err },
		} {
			err := begin()
			if sandbox.KindOf(err) != sandbox.Exhausted || !strings.Contains(err.Error(), "4096 MiB of the data's disk are free, and 5120 must stay so") || sandbox.HintOf(err) == "" {
				t.Errorf("%s: %v (%s)", name, err, sandbox.HintOf(err))
			}
		}
		if got := h.wantState(t, runs, sandbox.Running); !strings.HasPrefix(got.Reason, "the disk of the server is nearly full") {
			t.Errorf("reason: %q", got.Reason)
		}
		st, err := h.Status(operator(t))
		if err != nil || st.Disk == nil || !st.Disk.Low || !h.LowDisk() {
			t.Errorf("status: %+v, %v", st.Disk, err)
		}
		// What frees memory, or room, is never refused.
		if _, err := h.Stop(operator(t), string(runs.ID)); err != nil {
			t.Error(err)
		}
		if err := h.Remove(operator(t), string(runs.ID)); err != nil {
			t.Error(err)
		}
		d.free.Store(6 << 30)
		after(20 * time.Second)
		if _, err := h.Start(operator(t), string(asleep.ID)); err != nil {
			t.Error(err)
		}
		if h.LowDisk() {
			t.Error("it is low yet")
		}
	})
}

// TestLowDiskIsToldAndTakenBack puts both on record and in the journal.
func TestLowDiskIsToldAndTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &drive{}
		h := newHouse(t, func(c *engine.Config) { c.Room = engine.RoomConfig{Of: d} })
		defer h.Close()
		d.free.Store(50 << 30)
		after(20 * time.Second)
		s := h.create(t, sandbox.CreateRequest{})
		for _, want := range []bool{true, false, true} {
			d.free.Store(map[bool]int64{true: 1 << 30, false: 50 << 30}[want])
			after(20 * time.Second)
			if got := h.wantState(t, s, sandbox.Running); (got.Reason != "") != want {
				t.Errorf("reason: %q", got.Reason)
			}
		}
		page, err := h.Changes(operator(t), sandbox.ChangeQuery{Types: []sandbox.ChangeType{sandbox.ChangeUpdated}})
		if err != nil || len(page.Events) != 3 {
			t.Errorf("%d events, %v", len(page.Events), err)
		}
	})
}
