package gvisor_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
)

// TestReduceRunsNothing shows it by the layer's bytes: a program that was writing when
// its machine was put aside has written no more.
func TestReduceRunsNothing(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t, dir)
	spec := newSpec(t)
	b := create(t, d, spec)
	b.mustSh(t, "user", "(while :; do echo x >> /workspace/ticks; done) > /dev/null 2>&1 < /dev/null & sleep 0.2")
	saved, err := d.Pause(t.Context(), b.Machine, driver.KeepMemory)
	if err != nil {
		t.Fatal(err)
	}
	layer := filepath.Join(dir, string(spec.ID), "upper", "layer")
	before := sum(t, layer)
	left, err := d.Reduce(t.Context(), spec, saved)
	if err != nil {
		t.Fatal(err)
	}
	if after := sum(t, layer); !bytes.Equal(after, before) {
		t.Error("the layer has changed")
	}
	if live := engines(dir); len(live) > 0 {
		t.Errorf("still running: %q", live)
	}
	m, err := d.Resume(t.Context(), spec, left)
	if err != nil {
		t.Fatal(err)
	}
	b = client(t, m)
	b.mustSh(t, "user", "test -s /workspace/ticks")
	if err := b.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func sum(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return h.Sum(nil)
}

// TestReduceCutShort leaves it as far as a process may have come that was killed in
// its midst. A later process finds what was put aside, whole.
func TestReduceCutShort(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*gvisor.Driver, context.Context, driver.Spec, []byte) error
		keep bool // its memory is there yet
	}{
		{"loaded", (*gvisor.Driver).ReduceLoaded, true},
		{"written", func(d *gvisor.Driver, ctx context.Context, s driver.Spec, b []byte) error {
			return d.ReduceAsFarAs(ctx, s, b, false)
		}, true},
		{"counting", func(d *gvisor.Driver, ctx context.Context, s driver.Spec, b []byte) error {
			return d.ReduceAsFarAs(ctx, s, b, true)
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			d := newDriver(t, dir)
			spec := newSpec(t)
			b := create(t, d, spec)
			b.mustSh(t, "user", "echo kept > /workspace/file; sleep 1000 > /dev/null 2>&1 < /dev/null &")
			saved, err := d.Pause(t.Context(), b.Machine, driver.KeepMemory)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.do(d, t.Context(), spec, saved); err != nil {
				t.Fatal(err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = newDriver(t, dir)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			found, err := d.Find(ctx, spec.ID)
			if err != nil || found.Saved == nil {
				t.Fatalf("found %q, %q, %v", found.State, found.Saved, err)
			}
			if bytes.Equal(found.Saved, saved) != c.keep {
				t.Errorf("found %s", found.Saved)
			}
			if live := engines(dir); len(live) > 0 {
				t.Errorf("still running: %q", live)
			}
			m, err := d.Resume(ctx, spec, found.Saved)
			if err != nil {
				t.Fatal(err)
			}
			b = client(t, m)
			b.mustSh(t, "user", "grep -qx kept /workspace/file")
			if _, exit := b.sh(t, "user", "pgrep -x sleep"); (exit.Code == 0) != c.keep {
				t.Errorf("sleep runs: %v, want %v", exit.Code == 0, c.keep)
			}
			if err := b.Stop(ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}
