package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Bounds on how often a budget is looked at: just before it can be used up, but
// no more often than budgetLook. What a sandbox may use beyond its budget is what
// its cores do in that time and until its machine stands still.
const (
	budgetLook  = 50 * time.Millisecond
	budgetRetry = time.Second // after it could not be put aside
)

// lookAtBudget reads the machine's counter and reports whether the budget is used
// up; if not, when that can be at the earliest. A machine that does not say has
// ended, which its watcher settles.
func (e *Engine) lookAtBudget(ctx context.Context, s *stored, l *live) (next time.Time, spent bool) {
	e.measure(ctx, s.ID, l)
	left := e.budgetLeft(s)
	if left <= 0 {
		return time.Time{}, true
	}
	// At its full share the rest lasts for so long.
	lasts := time.Duration(float64(left) * 1000 / float64(max(s.Limits.CPUMilli, 1)))
	return e.now().Add(min(mostLook, max(budgetLook, lasts))), false
}

// canBudget refuses a budget that nothing would keep.
func (e *Engine) canBudget(b *sandbox.Budget) error {
	if _, off := e.meter.(noMeter); off && b.Bound() > 0 {
		return &sandbox.Error{Op: "check budget", Kind: sandbox.Unsupported, Err: errors.New("this server measures nothing"), Hint: "leave the budget out"}
	}
	return nil
}

// budgetLeft is the processor time that a sandbox has left, as of the last look.
func (e *Engine) budgetLeft(s *stored) time.Duration {
	return time.Duration(s.Budget.Bound())*time.Millisecond - e.meter.CPU(s.ID)
}

// mayWake refuses a sandbox whose budget is used up.
func (e *Engine) mayWake(s *stored) error {
	if s.Budget.Bound() == 0 || e.budgetLeft(s) > 0 {
		return nil
	}
	return &sandbox.Error{Kind: sandbox.Exhausted, Err: fmt.Errorf("%s, of which %d are used", s.spent(), e.meter.CPU(s.ID).Milliseconds()),
		Hint: "raise it: berth update " + string(s.ID) + " --cpu-budget MILLISECONDS, or 0 for none"}
}

func (s *stored) spent() string {
	return fmt.Sprintf("its budget of %d CPU-ms is used up", s.Budget.Bound())
}

// exhaust puts a sandbox aside whose budget is used up. If its memory cannot be kept
// its disk is; if nothing can, it is tried again soon.
func (e *Engine) exhaust(ctx context.Context, s *stored) time.Time {
	pause := putting{op: "pause", to: sandbox.Paused, keep: driver.KeepMemory, reason: s.spent(), atOnce: true}
	stop := putting{op: "stop", to: sandbox.Stopped, keep: driver.KeepDisk, reason: s.spent(), atOnce: true}
	ways := []putting{pause, stop}
	if s.Budget.Then() == sandbox.ActStop {
		ways = ways[1:]
	}
	var err error
	for _, p := range ways {
		if _, err = e.putAside(ctx, s.ID, p); err == nil {
			return time.Time{} // the change has planned what follows
		}
	}
	if ctx.Err() != nil {
		return time.Time{}
	}
	again := e.now().Add(budgetRetry)
	e.timers.pause(s.ID, again)
	e.log.Error("a sandbox's budget cannot be kept", "sandbox", s.ID, "error", err, "again_in", budgetRetry)
	e.note(ctx, s.ID, fmt.Sprintf("%s, but it could not be put aside: %v", s.spent(), err))
	return again
}
