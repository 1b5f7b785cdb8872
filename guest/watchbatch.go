package guest

import (
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// The types of an event, as the contract spells them.
const (
	evCreate   = "create"
	evModify   = "modify"
	evRemove   = "remove"
	evRename   = "rename"
	evAttrib   = "attrib"
	evOverflow = "overflow"
)

// maxBatch bounds the events of one window; a full batch is told at once.
const maxBatch = 1024

// batch collects the events of one window and tells each change of a path once:
// modifications after a creation or another modification, and changes of
// attributes likewise. What makes, removes or renames is never left out.
type batch struct {
	events []*guestv1.WatchEvent // nil where one was taken back
	told   map[string]uint8      // by path, what need not be told again
	begun  time.Time             // when the first one came
}

const (
	toldModify = 1 << iota
	toldAttrib
)

// add takes an event and returns its place for take.
func (b *batch) add(e *guestv1.WatchEvent) int {
	if b.told == nil {
		b.told = map[string]uint8{}
	}
	path := string(e.Path)
	switch e.Type {
	case evModify, evAttrib:
		bit := uint8(toldModify)
		if e.Type == evAttrib {
			bit = toldAttrib
		}
		if b.told[path]&bit != 0 {
			return -1
		}
		b.told[path] |= bit
	case evCreate:
		b.told[path] = toldModify | toldAttrib
	default:
		delete(b.told, path)
		delete(b.told, string(e.From))
	}
	if len(b.events) == 0 {
		b.begun = time.Now()
	}
	b.events = append(b.events, e)
	return len(b.events) - 1
}

// take takes an event back.
func (b *batch) take(place int) {
	if place >= 0 && place < len(b.events) {
		b.events[place] = nil
	}
}

// flush empties the batch.
func (b *batch) flush() []*guestv1.WatchEvent {
	var out []*guestv1.WatchEvent
	for _, e := range b.events {
		if e != nil {
			out = append(out, e)
		}
	}
	*b = batch{}
	return out
}

func overflowEvent(reason, cursor string) *guestv1.WatchEvent {
	return &guestv1.WatchEvent{Type: evOverflow, Reason: reason, Cursor: cursor, TimeUnixNano: time.Now().UnixNano()}
}
