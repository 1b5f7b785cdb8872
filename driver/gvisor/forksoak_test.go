package gvisor_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor"
	"github.com/berth-dev/berth/sandbox"
)

// TestAThousandForks makes a thousand forks, three generations deep: each one has what
// its parent had and a file of its own, writes to memory and disk, and says so when it
// is asked at the end of its life; of all of them nothing is left.
func TestAThousandForks(t *testing.T) {
	if os.Getenv("BERTH_SOAK") == "" {
		t.Skip("takes minutes: set BERTH_SOAK")
	}
	const rounds, each = 10, 4 // a round is 4 children, 16 grandchildren, 84 in the third generation
	dir := t.TempDir()
	d := newDriver(t, dir)
	root := create(t, d, newSpec(t))
	put(t, root, soakBinary(t), "/tmp/soak")
	root.load(t, 8)
	root.mustSh(t, "user", "echo root > ~/line")
	before := hostUse(t)
	made, began := 0, time.Now()
	for round := range rounds {
		children := brood(t, d, root, "c", each)
		made += len(children)
		for _, c := range children {
			grandchildren := brood(t, d, c, "g", each)
			made += len(grandchildren)
			for i, g := range grandchildren {
				n := each + 1 + (i+1)/each // 5, 5, 5, 6
				third := brood(t, d, g, "t", n)
				made += len(third)
				eachOf(t, third, func(b box) error { return b.lives(t, "root c g t") })
				endAll(t, third)
			}
			eachOf(t, grandchildren, func(b box) error { return b.lives(t, "root c g") })
			endAll(t, grandchildren)
		}
		eachOf(t, children, func(b box) error { return b.lives(t, "root c") })
		endAll(t, children)
		if err := root.lives(t, "root"); err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: %d forks, %v; %s", round, made, time.Since(began).Round(time.Second), hostUse(t))
	}
	if made < 1000 {
		t.Errorf("%d forks", made)
	}
	t.Logf("%d forks in %v; before %s, after %s", made, time.Since(began).Round(time.Second), before, hostUse(t))
	if err := root.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := leftovers(d, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// brood forks a machine so many times; each child adds a word to a line of its own.
func brood(t *testing.T, d *gvisor.Driver, from box, word string, n int) (all []box) {
	t.Helper()
	var specs []driver.Spec
	for range n {
		specs = append(specs, newSpec(t))
	}
	f, err := d.Fork(t.Context(), from.Machine, specs)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range f.Each {
		if one.Err != nil {
			t.Fatal(one.Err)
		}
		all = append(all, client(t, one.Machine))
	}
	eachOf(t, all, func(b box) error { return b.say(t, "echo $(cat ~/line) "+word+" > ~/line; echo ok", "ok") })
	return all
}

// say runs a line, which has to print what is wanted.
func (b box) say(t *testing.T, line, want string) error {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	out, code, err := output(ctx, b.guest, line)
	if err != nil || code != 0 || strings.TrimSpace(out) != want {
		return fmt.Errorf("%s: %q, exit %d, %v", b.ID(), out, code, err)
	}
	return nil
}

// lives checks a machine's disk and memory.
func (b box) lives(t *testing.T, line string) error {
	if err := b.say(t, "cat ~/line", line); err != nil {
		return err
	}
	return b.tryAsk(t, "verify", "some", "verify")
}

func eachOf(t *testing.T, all []box, do func(box) error) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(4)
	for _, b := range all {
		g.Go(func() error { return do(b) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func endAll(t *testing.T, all []box) {
	t.Helper()
	eachOf(t, all, func(b box) error { return sandboxEnd(t.Context(), b) })
}

func sandboxEnd(ctx context.Context, b box) error {
	b.guest.Close()
	if err := b.Stop(ctx); err != nil {
		return &sandbox.Error{Op: "end", Err: err}
	}
	return nil
}

// hostUse is what this process has open, and what memory the host has left.
func hostUse(t *testing.T) string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/berth/*")
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(b), "MemAvailable:")
	return fmt.Sprintf("%d descriptors, %d groups, %s kB available", len(fds), len(groups), strings.Fields(after)[0])
}
