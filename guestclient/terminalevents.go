package guestclient

import (
	"errors"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// maxSeed bounds the bytes that draw a screen: the largest screen, each cell with
// colours and marks of its own, and all that scrolled off.
const maxSeed = 256 << 20

// terminalReading holds a terminal's events to their order.
type terminalReading struct {
	at      int64
	placed  bool  // at is known
	seeding int64 // bytes of a seed that are still to come
}

func (r *terminalReading) first(m *guestv1.TerminalEvent) (sandbox.TerminalEvent, error) {
	attached := m.GetAttached()
	if attached == nil {
		return sandbox.TerminalEvent{}, errors.New("the first event is not the attachment")
	}
	t, err := terminal(attached)
	return sandbox.TerminalEvent{Attached: &t}, err
}

func (r *terminalReading) last(e sandbox.TerminalEvent) bool { return e.Exit != nil }

func (r *terminalReading) next(m *guestv1.TerminalEvent) (e sandbox.TerminalEvent, says bool, err error) {
	switch x := m.Event.(type) {
	case *guestv1.TerminalEvent_KeepAlive, nil:
		return e, false, nil
	case *guestv1.TerminalEvent_SeedData:
		e, err = r.seedData(x.SeedData)
		return e, true, err
	}
	if r.seeding > 0 {
		return e, false, errorf("a seed that lacks %d bytes", r.seeding)
	}
	e, err = r.take(m)
	return e, true, err
}

func (r *terminalReading) take(m *guestv1.TerminalEvent) (sandbox.TerminalEvent, error) {
	switch x := m.Event.(type) {
	case *guestv1.TerminalEvent_Seed:
		return r.seed(x.Seed)
	case *guestv1.TerminalEvent_Output:
		return r.output(x.Output)
	case *guestv1.TerminalEvent_Resized:
		if err := checkedSize(x.Resized.Cols, x.Resized.Rows); err != nil {
			return sandbox.TerminalEvent{}, err
		}
		return sandbox.TerminalEvent{Resized: &sandbox.TerminalSize{Cols: int(x.Resized.Cols), Rows: int(x.Resized.Rows)}}, nil
	case *guestv1.TerminalEvent_Exit:
		end := exit(x.Exit)
		return sandbox.TerminalEvent{Exit: &end}, nil
	}
	return sandbox.TerminalEvent{}, errors.New("a second attachment")
}

func (r *terminalReading) seed(s *guestv1.Seed) (sandbox.TerminalEvent, error) {
	if err := checkedSize(s.Cols, s.Rows); err != nil {
		return sandbox.TerminalEvent{}, err
	}
	if s.Bytes < 0 || s.Bytes > maxSeed || s.Offset < 0 || (r.placed && s.Offset < r.at) {
		return sandbox.TerminalEvent{}, errorf("a seed of %d bytes at offset %d", s.Bytes, s.Offset)
	}
	r.at, r.placed, r.seeding = s.Offset, true, s.Bytes
	return sandbox.TerminalEvent{Seed: &sandbox.TerminalSeed{Offset: s.Offset, Bytes: s.Bytes, Cols: int(s.Cols), Rows: int(s.Rows)}}, nil
}

func (r *terminalReading) seedData(b []byte) (sandbox.TerminalEvent, error) {
	if len(b) == 0 || int64(len(b)) > r.seeding {
		return sandbox.TerminalEvent{}, errorf("%d bytes of a seed that lacks %d", len(b), r.seeding)
	}
	r.seeding -= int64(len(b))
	return sandbox.TerminalEvent{Seeding: true, Data: b}, nil
}

func (r *terminalReading) output(o *guestv1.TerminalOutput) (sandbox.TerminalEvent, error) {
	if !r.placed || o.Offset != r.at || len(o.Data) == 0 {
		return sandbox.TerminalEvent{}, errorf("%d bytes at offset %d, where %d is next", len(o.Data), o.Offset, r.at)
	}
	next, err := advance(o.Offset, int64(len(o.Data)))
	if err != nil {
		return sandbox.TerminalEvent{}, err
	}
	r.at = next
	return sandbox.TerminalEvent{Offset: o.Offset, Data: o.Data}, nil
}
