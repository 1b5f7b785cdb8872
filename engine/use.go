package engine

import (
	"context"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// calmTime is how long a pause waits for short calls to come to their end.
const calmTime = 5 * time.Second

// shortCall is the activity of a call that is over in a moment. It keeps a pause
// waiting, and counts as activity when it comes and when it goes.
const shortCall sandbox.Activity = ""

// uses counts who uses a machine, for its idle policy and for whoever wants to
// put it aside.
type uses struct {
	mu     sync.Mutex
	shut   bool // nobody new is let in: it is being put aside
	counts map[sandbox.Activity]int
	calm   chan struct{} // if set, closed when the last short call has ended
	last   time.Time     // when somebody last came, went or was heard of
	cpu    time.Duration // at the last look
	looked time.Time     // when that was; zero before the first
}

// begin lets a user in, unless the machine is being put aside. end may be called
// more than once.
func (u *uses) begin(a sandbox.Activity, now func() time.Time) (end func(), ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.shut {
		return nil, false
	}
	if u.counts == nil {
		u.counts = map[sandbox.Activity]int{}
	}
	u.counts[a]++
	u.last = now()
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.counts[a]--
		u.last = now()
		if u.calm != nil && u.counts[shortCall] == 0 {
			close(u.calm)
			u.calm = nil
		}
	}), true
}

// touch notes a sign of life; false means that nobody is let in.
func (u *uses) touch(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.last.Before(now) {
		u.last = now
	}
	return !u.shut
}

// close lets nobody new in and waits for the short calls to end, for calmTime at
// most. If may is given and refuses, nothing changes and the result is false.
func (u *uses) close(ctx context.Context, may func(*uses) bool) (bool, error) {
	return u.closeIn(ctx, may, calmTime)
}

// closeIn is close that waits for so long at most.
func (u *uses) closeIn(ctx context.Context, may func(*uses) bool, wait time.Duration) (bool, error) {
	u.mu.Lock()
	if may != nil && !may(u) {
		u.mu.Unlock()
		return false, nil
	}
	u.shut = true
	if u.counts[shortCall] == 0 {
		u.mu.Unlock()
		return true, nil
	}
	calm := make(chan struct{})
	u.calm = calm
	u.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-calm:
	case <-t.C:
	case <-ctx.Done():
		return true, context.Cause(ctx)
	}
	return true, nil
}

func (u *uses) open() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.shut, u.calm = false, nil
}

// carries reports whether somebody follows what a process does.
func (u *uses) carries() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.counts[sandbox.ActivityExec] > 0 || u.counts[sandbox.ActivityStream] > 0
}

// busy reports whether there is any activity that p counts. The caller holds
// u.mu.
func (u *uses) busy(p *sandbox.Idle) bool {
	for a, n := range u.counts {
		if n > 0 && (a == shortCall || p.Counts(a)) {
			return true
		}
	}
	return false
}
