package engine

import (
	"container/heap"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// lookers is how many sandboxes are looked at, or acted on, at once.
const lookers = 4

// timers holds when to look at which sandbox again, the soonest first. What
// expires beside the sandboxes is in it too, under its key. Its one goroutine is
// Engine.keepTime.
type timers struct {
	now func() time.Time

	mu     sync.Mutex
	queue  timerQueue
	by     map[sandbox.ID]*timer
	rest   map[sandbox.ID]time.Time // no look before then: what was tried has failed
	sooner chan struct{}            // of one: the first has changed
}

type timer struct {
	id    sandbox.ID
	at    time.Time
	place int // in the queue
}

func newTimers(now func() time.Time) *timers {
	return &timers{now: now, by: map[sandbox.ID]*timer{}, rest: map[sandbox.ID]time.Time{}, sooner: make(chan struct{}, 1)}
}

// plan has a sandbox looked at now, if its policy needs that: the look finds out
// when to look again.
func (t *timers) plan(s *stored) {
	timed := s.Lifetime.Length() > 0 || (s.Idle.Timeout() > 0 || s.Budget.Bound() > 0 || s.Checkpoint.Every() > 0) && s.State == sandbox.Running
	if timed && s.living() {
		t.set(s.ID, t.now())
	} else {
		t.drop(s.ID)
	}
}

// set has a sandbox looked at then, or sooner if that is planned already.
func (t *timers) set(id sandbox.ID, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until := t.rest[id]; until.After(at) {
		at = until
	}
	if old := t.by[id]; old != nil {
		if at.Before(old.at) {
			old.at = at
			heap.Fix(&t.queue, old.place)
		}
	} else {
		one := &timer{id: id, at: at}
		t.by[id] = one
		heap.Push(&t.queue, one)
	}
	select {
	case t.sooner <- struct{}{}:
	default:
	}
}

// pause keeps a sandbox from being looked at before then.
func (t *timers) pause(id sandbox.ID, until time.Time) {
	t.drop(id)
	t.mu.Lock()
	t.rest[id] = until
	t.mu.Unlock()
	t.set(id, until)
}

func (t *timers) drop(id sandbox.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.rest, id)
	if old := t.by[id]; old != nil {
		heap.Remove(&t.queue, old.place)
		delete(t.by, id)
	}
}

// due takes the first sandbox whose time has come; otherwise it returns how long
// to wait, and false if there is nothing to wait for.
func (t *timers) due() (id sandbox.ID, wait time.Duration, some bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		return "", 0, false
	}
	first := t.queue[0]
	if wait := first.at.Sub(t.now()); wait > 0 {
		return "", wait, true
	}
	heap.Pop(&t.queue)
	delete(t.by, first.id)
	delete(t.rest, first.id)
	return first.id, 0, true
}

// keepTime looks at each sandbox when its time has come, lookers at once, until
// the engine closes.
func (e *Engine) keepTime() {
	turn := make(chan struct{}, lookers)
	for e.ctx.Err() == nil {
		id, wait, some := e.timers.due()
		if id == "" {
			e.untilDue(wait, some)
			continue
		}
		select {
		case turn <- struct{}{}:
		case <-e.ctx.Done():
			return
		}
		e.tasks.Go(func() {
			defer func() { <-turn }()
			if next := e.look(e.ctx, id); !next.IsZero() {
				e.timers.set(id, next)
			}
		})
	}
}

// untilDue waits until the first timer is due, or another is the first.
func (e *Engine) untilDue(wait time.Duration, some bool) {
	var ring <-chan time.Time
	if some {
		t := time.NewTimer(wait)
		defer t.Stop()
		ring = t.C
	}
	select {
	case <-ring:
	case <-e.timers.sooner:
	case <-e.ctx.Done():
	}
}

// timerQueue is a heap by time.
type timerQueue []*timer

func (q timerQueue) Len() int           { return len(q) }
func (q timerQueue) Less(i, j int) bool { return q[i].at.Before(q[j].at) }
func (q timerQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *timerQueue) Push(x any) {
	t := x.(*timer)
	t.place = len(*q)
	*q = append(*q, t)
}

func (q *timerQueue) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
