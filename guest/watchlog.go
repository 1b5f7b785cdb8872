package guest

import (
	"strconv"
	"sync"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// Bounds on what one watcher keeps for readers that are behind or away.
const (
	keptEvents     = 4096
	keptEventBytes = 512 << 10
)

// watchLog keeps the newest events of a watcher under consecutive numbers, from
// 1 on. Any number of readers follow it; none slows the watcher down.
type watchLog struct {
	id string // of the watcher, for cursors

	mu      sync.Mutex
	events  []*guestv1.WatchEvent
	first   int64 // number of events[0]
	bytes   int
	err     error         // why there will be no more
	changed chan struct{} // closed at the next change
}

func newWatchLog(id string) *watchLog {
	return &watchLog{id: id, first: 1, changed: make(chan struct{})}
}

// cursor names the place behind an event.
func (l *watchLog) cursor(number int64) string { return l.id + "-" + strconv.FormatInt(number, 10) }

// last is the number of the newest event, 0 when there was none.
func (l *watchLog) last() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first + int64(len(l.events)) - 1
}

// add takes events over and forgets old ones.
func (l *watchLog) add(events []*guestv1.WatchEvent) {
	if len(events) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		e.Cursor = l.cursor(l.first + int64(len(l.events)))
		l.events = append(l.events, e)
		l.bytes += eventBytes(e)
	}
	drop := 0
	for len(l.events)-drop > keptEvents || l.bytes > keptEventBytes {
		l.bytes -= eventBytes(l.events[drop])
		drop++
	}
	if drop > 0 {
		l.events = append([]*guestv1.WatchEvent(nil), l.events[drop:]...)
		l.first += int64(drop)
	}
	l.wake()
}

func eventBytes(e *guestv1.WatchEvent) int { return len(e.Path) + len(e.From) + 128 }

// fail ends the log; the first reason counts.
func (l *watchLog) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
	l.wake()
}

func (l *watchLog) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// after gives what follows an event, at most a few hundred. If something of that
// is no longer kept, an overflow comes first. With nothing to give, wait tells
// when to ask again, or err why there will be nothing.
func (l *watchLog) after(number int64) (events []*guestv1.WatchEvent, next int64, wait <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number < l.first-1 {
		number = l.first - 1
		events = append(events, overflowEvent("events came faster than they were read", l.cursor(number)))
	}
	from := int(number - l.first + 1)
	if from > len(l.events) { // a cursor of nothing that happened
		from = len(l.events)
		number = l.first + int64(len(l.events)) - 1
		events = append(events, overflowEvent("the cursor is not known", l.cursor(number)))
	}
	part := l.events[from:min(len(l.events), from+256)]
	events = append(events, part...)
	if len(events) == 0 && l.err != nil {
		return nil, number, nil, l.err
	}
	return events, number + int64(len(part)), l.changed, nil
}
