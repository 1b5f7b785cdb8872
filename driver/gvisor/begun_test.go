package gvisor_test

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// TestWhatHasBegunIsNotTakenBack cuts resumes short, before and after what was saved
// runs, and its engine dies: what has not run serves again, what has is gone, for it has
// changed the disk that was saved with it.
func TestWhatHasBegunIsNotTakenBack(t *testing.T) {
	for _, c := range []struct {
		keep driver.Keep
		runs bool
		here bool // the process that resumes notices
	}{
		{driver.KeepMemory, false, false},
		{driver.KeepMemory, true, false},
		{driver.KeepMemory, false, true},
		{driver.KeepMemory, true, true},
		{driver.KeepDisk, true, false},
	} {
		t.Run(fmt.Sprintf("%s runs %v here %v", c.keep, c.runs, c.here), func(t *testing.T) {
			dir := t.TempDir()
			d := newDriver(t, dir)
			spec := newSpec(t)
			b := create(t, d, spec)
			b.mustSh(t, "user", "echo kept > ~/file")
			saved := must(t, func() ([]byte, error) { return d.Pause(t.Context(), b.Machine, c.keep) })
			pid := must(t, func() (int, error) { return d.ResumeAsFarAs(t.Context(), spec, saved, c.runs) })
			if err := unix.Kill(pid, unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if c.here {
				err := d.PutBack(t.Context(), spec.ID)
				if gone := sandbox.KindOf(err) == sandbox.NotFound; err == nil || gone != c.runs {
					t.Fatalf("put back: %v", err)
				}
			}
			found, err := d.Find(t.Context(), spec.ID)
			if c.runs {
				if sandbox.KindOf(err) != sandbox.NotFound {
					t.Fatalf("found %q, %v", found, err)
				}
				if _, err := d.Resume(t.Context(), spec, saved); sandbox.KindOf(err) != sandbox.NotFound {
					t.Errorf("resume: %v", err)
				}
				if left := leftovers(d, dir); len(left) > 0 {
					t.Errorf("left: %q", left)
				}
				return
			}
			if err != nil || found.Saved == nil {
				t.Fatalf("found %q, %v", found, err)
			}
			m := must(t, func() (driver.Machine, error) { return d.Resume(t.Context(), spec, found.Saved) })
			if got := client(t, m).mustSh(t, "user", "cat ~/file"); got != "kept" {
				t.Errorf("inside: %q", got)
			}
		})
	}
}
