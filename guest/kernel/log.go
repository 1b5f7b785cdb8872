package kernel

import (
	"slices"
	"sync"
	"time"
)

// Event is one thing that a run did. Which fields are set its kind says.
type Event struct {
	Seq  int64 // from 1
	Time time.Time
	Kind Kind

	Text   string // Stdout, Stderr
	Result *Result
	Error  *Failure
	Missed int64 // events
	End    *End
}

// Kind says what an event is.
type Kind int

// The kinds of events. Ended is the last of a run.
const (
	Stdout Kind = iota + 1
	Stderr
	Shown
	Raised
	Cleared
	Missed
	Ended
)

// Failure is what code raised and did not catch.
type Failure struct {
	Name, Value string
	Traceback   []string
}

// End is how a run ended.
type End struct {
	Status Status
	Count  int64  // of the runs that the kernel has counted; 0: none
	Reason string // for people, unless the status says it all
}

// Status says how a run ended.
type Status int

// How a run can end.
const (
	OK          Status = iota + 1
	Failed             // it raised an error
	Interrupted        // as somebody asked
	TimedOut
	Cancelled // before its turn
	Died      // its kernel ended
)

// logBytes bounds what is kept of one run. Tests lower it.
var logBytes = 32 << 20

// Bounds on what is kept of runs, in bytes.
const (
	endedBytes = 32 << 20 // of those that have ended, all together
	eventBytes = 128      // that an event takes beside its texts
)

// log is what a run did, the newest of it. Any number of cursors read it.
type log struct {
	mu      sync.Mutex
	events  []Event
	size    int
	next    int64 // seq of the event to come; the first is 1
	ended   bool
	cursors map[*Cursor]struct{}
}

func newLog() *log { return &log{next: 1, cursors: map[*Cursor]struct{}{}} }

// add keeps an event, and forgets the oldest beyond the bound.
func (l *log) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	e.Seq, e.Time = l.next, time.Now()
	l.next++
	l.ended = e.Kind == Ended
	l.events = append(l.events, e)
	l.size += e.size()
	drop := 0
	for l.size > logBytes && drop < len(l.events)-1 {
		l.size -= l.events[drop].size()
		drop++
	}
	l.events = slices.Delete(l.events, 0, drop)
	for c := range l.cursors {
		c.poke()
	}
}

// forget keeps the last event alone.
func (l *log) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = slices.Delete(l.events, 0, max(len(l.events)-1, 0))
	l.size = 0
	for _, e := range l.events {
		l.size += e.size()
	}
}

func (l *log) bytes() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

func (e *Event) size() int {
	n := eventBytes + len(e.Text)
	if e.Result != nil {
		n += e.Result.size()
	}
	if e.Error != nil {
		n += len(e.Error.Name) + len(e.Error.Value)
		for _, line := range e.Error.Traceback {
			n += len(line) + 16
		}
	}
	return n
}

// Cursor is one reader's place in a run.
type Cursor struct {
	log  *log
	at   int64 // seq of the last event given
	wake chan struct{}
}

// read opens a cursor behind an event; false: there is none of that number yet.
func (l *log) read(after int64) (*Cursor, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if after < 0 || after >= l.next {
		return nil, false
	}
	c := &Cursor{log: l, at: after, wake: make(chan struct{}, 1)}
	l.cursors[c] = struct{}{}
	return c, true
}

// Next gives the next event; false: there is none yet. What is no longer kept is an
// event Missed, with the number of the last that is.
func (c *Cursor) Next() (Event, bool) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	if len(c.log.events) == 0 || c.at >= c.log.next-1 {
		return Event{}, false
	}
	first := c.log.events[0].Seq
	if c.at+1 < first {
		e := Event{Seq: first - 1, Time: c.log.events[0].Time, Kind: Missed, Missed: first - 1 - c.at}
		c.at = first - 1
		return e, true
	}
	e := c.log.events[c.at+1-first]
	c.at = e.Seq
	return e, true
}

// Wake is told when there may be more.
func (c *Cursor) Wake() <-chan struct{} { return c.wake }

func (c *Cursor) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Close ends the cursor.
func (c *Cursor) Close() {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	delete(c.log.cursors, c)
}
