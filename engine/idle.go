package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Bounds on how often a sandbox is looked at.
const (
	leastLook  = time.Second      // between two looks at its processor use
	mostLook   = time.Minute      // the same
	retryAfter = time.Minute      // after an action that failed
	usageTime  = 10 * time.Second // for a driver to say what a machine uses
)

// look does what a sandbox's policy asks for now, and returns when to look
// again; zero means not before something changes.
func (e *Engine) look(ctx context.Context, id sandbox.ID) time.Time {
	if strings.Contains(string(id), kindOfKept) {
		return e.expire(ctx, string(id))
	}
	now := e.now()
	s, err := e.load(ctx, id)
	if err == nil && s.Doing != nil {
		s, err = e.arrived(ctx, id) // the verb ends, or is settled
	}
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		return time.Time{}
	case err != nil:
		return now.Add(retryAfter)
	}
	var next time.Time
	if end := s.Ends(); !end.IsZero() {
		if !now.Before(end) {
			return e.act(ctx, s, s.Lifetime.Then(), fmt.Sprintf("its lifetime of %v is over", s.Lifetime.Length()), nil)
		}
		next = end
	}
	if s.State != sandbox.Running || s.Idle.Timeout() == 0 && s.Budget.Bound() == 0 && s.Checkpoint.Every() == 0 {
		return next
	}
	l := e.held(id)
	if l == nil {
		return now.Add(leastLook) // its machine could not be adopted yet
	}
	if at := e.lookAtCheckpoint(ctx, s); !at.IsZero() && (next.IsZero() || at.Before(next)) {
		next = at
	}
	if s.Budget.Bound() > 0 {
		at, spent := e.lookAtBudget(ctx, s, l)
		if spent {
			return e.exhaust(ctx, s)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if s.Idle.Timeout() == 0 {
		return next
	}
	if s.Idle.Counts(sandbox.ActivityCPU) {
		e.lookAtCPU(ctx, s, l)
	}
	u := &l.uses
	u.mu.Lock()
	at := u.idleAt(s, now)
	u.mu.Unlock()
	if !now.Before(at) {
		return e.act(ctx, s, s.Idle.Then(), fmt.Sprintf("it was idle for %v", s.Idle.Timeout()), func(u *uses) bool { return !e.now().Before(u.idleAt(s, e.now())) })
	}
	if step := min(mostLook, max(leastLook, s.Idle.Timeout()/4)); s.Idle.Counts(sandbox.ActivityCPU) && at.After(now.Add(step)) {
		at = now.Add(step)
	}
	if next.IsZero() || at.Before(next) {
		next = at
	}
	return next
}

// idleAt is when a sandbox will have been idle for long enough, if nobody comes.
// The caller holds u.mu.
func (u *uses) idleAt(s *stored, now time.Time) time.Time {
	from := u.last
	if u.busy(s.Idle) {
		from = now
	}
	at := from.Add(s.Idle.Timeout())
	if s.KeepUntil.After(at) {
		at = s.KeepUntil
	}
	return at
}

// lookAtCPU counts the processor time since the last look as activity, if it is
// above the policy's threshold. A machine that does not say is left alone.
func (e *Engine) lookAtCPU(ctx context.Context, s *stored, l *live) {
	ctx, cancel := context.WithTimeout(ctx, usageTime)
	defer cancel()
	usage, err := l.machine.Usage(ctx)
	if err != nil {
		return // it has ended, which its watcher settles
	}
	now := e.now()
	l.uses.mu.Lock()
	defer l.uses.mu.Unlock()
	since := now.Sub(l.looked)
	if !l.looked.IsZero() && since < leastLook/2 {
		return // too short to tell
	}
	if used := usage.CPU - l.cpu; !l.looked.IsZero() && used.Microseconds()*1000 > s.Idle.Threshold()*since.Microseconds() {
		l.last = now
	}
	l.cpu, l.looked = usage.CPU, now
}

// act does what a policy says. What keeps it from that is on record, for nobody
// waits for the answer.
func (e *Engine) act(ctx context.Context, s *stored, a sandbox.Action, reason string, may func(*uses) bool) time.Time {
	var err error
	switch a {
	case sandbox.ActRemove:
		err = e.remove(ctx, s.ID, reason, may)
	case sandbox.ActStop:
		_, err = e.putAside(ctx, s.ID, putting{op: "stop", to: sandbox.Stopped, keep: driver.KeepDisk, reason: reason, may: may})
	default:
		_, err = e.putAside(ctx, s.ID, putting{op: "pause", to: sandbox.Paused, keep: driver.KeepMemory, reason: reason, may: may})
	}
	switch {
	case err == nil:
		return time.Time{} // the change has planned what follows
	case errors.Is(err, errBusy) || ctx.Err() != nil:
		return e.now().Add(leastLook)
	}
	e.timers.pause(s.ID, e.now().Add(retryAfter))
	e.log.Error("a sandbox's policy cannot be kept", "sandbox", s.ID, "action", a, "error", err, "again_in", retryAfter)
	e.note(ctx, s.ID, fmt.Sprintf("%s, but %s did not succeed: %v", reason, a, err))
	return e.now().Add(retryAfter)
}

// note puts a reason on record for whoever looks. One that cannot be written now
// is written with the next attempt.
func (e *Engine) note(ctx context.Context, id sandbox.ID, reason string) {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return
	}
	defer unlock()
	s, err := e.loadMended(ctx, id)
	if err != nil || s.Reason == reason {
		return
	}
	changed := *s
	changed.Reason = reason
	if err := e.commit(ctx, s, &changed, sandbox.ChangeUpdated); err != nil {
		e.log.Error("note a reason", "sandbox", id, "error", err)
	}
}
