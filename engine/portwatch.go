package engine

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// How often the ports of a sandbox are looked at: soon after somebody has come,
// then ever less, and not at all once nobody is there. An idle sandbox costs
// nothing.
const (
	firstPortLook = 250 * time.Millisecond
	busyPortLook  = 2 * time.Second  // the most while a command, a stream or a terminal is open
	lastPortLook  = 20 * time.Second // past it there is no further look
	portLookTime  = 5 * time.Second  // for the guest to answer

	portNews     = 64               // changes that are told at once, and
	portNewsPace = 10 * time.Second // how long it takes until one more is: a guest must not fill the journal
)

// portEye is what is known of the looks at one machine's ports.
type portEye struct {
	mu      sync.Mutex
	looking bool          // somebody is, or will soon
	stirred chan struct{} // of one: somebody has come
	spent   int           // of portNews
	freed   time.Time     // when spent was last counted down
}

// stirPorts has the ports looked at soon. The look is the engine's own task.
func (e *Engine) stirPorts(id sandbox.ID, l *live) {
	l.eye.mu.Lock()
	defer l.eye.mu.Unlock()
	if l.eye.looking {
		select {
		case l.eye.stirred <- struct{}{}:
		default:
		}
		return
	}
	finished, err := e.task()
	if err != nil {
		return // the engine is closing
	}
	if l.eye.stirred == nil {
		l.eye.stirred = make(chan struct{}, 1)
	}
	l.eye.looking = true
	go func() {
		defer finished()
		e.watchPorts(id, l)
	}()
}

// watchPorts looks again and again until nothing moves any more.
func (e *Engine) watchPorts(id sandbox.ID, l *live) {
	pause := firstPortLook
	wait := time.NewTimer(pause)
	defer wait.Stop()
	for due := time.Now().Add(pause); ; due = time.Now().Add(pause) {
		select {
		case <-e.ctx.Done():
			return
		case <-l.eye.stirred:
			pause = min(firstPortLook, time.Until(due)) // who comes all the time does not put it off
			wait.Reset(pause)
			continue
		case <-wait.C:
		}
		pause = max(pause, firstPortLook)
		ok := e.lookAtPorts(id, l)
		if pause *= 2; l.uses.attended() {
			pause = min(pause, busyPortLook)
		}
		l.eye.mu.Lock()
		if over := !ok || pause > lastPortLook; over && len(l.eye.stirred) == 0 {
			l.eye.looking = false
			l.eye.mu.Unlock()
			return
		}
		l.eye.mu.Unlock()
		pause = min(pause, lastPortLook)
		wait.Reset(pause)
	}
}

// attended reports whether anybody waits for something in the sandbox.
func (u *uses) attended() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.counts[sandbox.ActivityExec]+u.counts[sandbox.ActivityStream] > 0
}

// lookAtPorts tells what has changed since the last look, or reports that there
// is nothing to look at any more. It is no activity.
func (e *Engine) lookAtPorts(id sandbox.ID, l *live) bool {
	ctx, cancel := context.WithTimeout(e.ctx, portLookTime)
	defer cancel()
	if e.held(id) != l {
		return false
	}
	open, err := l.guest.Ports(ctx, false)
	if err != nil {
		return false // it ends or sleeps, or its guest is too old: the next visitor has it looked at again
	}
	seen := make([]int, len(open))
	for i, p := range open {
		seen[i] = p.Port
	}
	s, err := e.load(ctx, id)
	if err != nil || s.State != sandbox.Running {
		return false
	}
	if slices.Equal(s.Ports, seen) {
		return true
	}
	if err := e.tellPorts(ctx, id, l, seen); err != nil {
		e.log.Warn("tell of ports", "sandbox", id, "error", err)
	}
	return true
}

// tellPorts puts each change on record and in the journal.
func (e *Engine) tellPorts(ctx context.Context, id sandbox.ID, l *live, seen []int) error {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	s, err := e.loadMended(ctx, id)
	if err != nil || s.State != sandbox.Running || e.held(id) != l {
		return err // a verb has come between
	}
	for _, n := range slices.Concat(s.Ports, seen) {
		what := sandbox.ChangePortOpened
		if slices.Contains(s.Ports, n) {
			what = sandbox.ChangePortClosed
		}
		if slices.Contains(s.Ports, n) == slices.Contains(seen, n) {
			continue
		}
		if !l.eye.mayTell(e.now()) {
			return nil // the rest is told by a later look
		}
		changed := *s
		changed.Ports = flipped(s.Ports, n)
		if err := e.commit(ctx, s, &changed, what); err != nil {
			return err
		}
	}
	return nil
}

// mayTell takes one of the news that are allowed.
func (y *portEye) mayTell(now time.Time) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if free := int(now.Sub(y.freed) / portNewsPace); free > 0 {
		y.spent, y.freed = max(0, y.spent-free), now
	}
	y.spent++
	return y.spent <= portNews
}

// flipped is a sorted list with n added, or removed if it was there.
func flipped(ports []int, n int) []int {
	i, ok := slices.BinarySearch(ports, n)
	if ok {
		return slices.Delete(slices.Clone(ports), i, i+1)
	}
	return slices.Insert(slices.Clone(ports), i, n)
}

// portChanged is the port that only one of two records has.
func portChanged(from, to []int) int {
	for _, n := range slices.Concat(from, to) {
		if slices.Contains(from, n) != slices.Contains(to, n) {
			return n
		}
	}
	return 0
}
