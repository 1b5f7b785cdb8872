package guestclient

import (
	"errors"
	"net/http"
	"time"

	"github.com/berth-dev/berth/guestapi"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// processReading holds a process's events to their order: Started, output whose offsets
// leave no gap untold, then Exit.
type processReading struct {
	at    sandbox.Offsets
	begun time.Time
	timed func(Timing) // may be nil
}

func (r *processReading) first(m *guestv1.ProcessEvent) (sandbox.Event, error) {
	started := m.GetStarted()
	if started == nil {
		return sandbox.Event{}, errors.New("the first event is not the start")
	}
	p, err := process(started)
	return sandbox.Event{Started: &p}, err
}

// ended reads what the guest says behind the last event.
func (r *processReading) ended(trailer http.Header) {
	if r.timed == nil {
		return
	}
	if t, ok := guestapi.ParseTiming(trailer.Get(guestapi.TimingTrailer)); ok {
		r.timed(Timing{t, max(0, time.Since(r.begun)-t.Sum())})
	}
}

func (r *processReading) last(e sandbox.Event) bool { return e.Exit != nil }

func (r *processReading) next(m *guestv1.ProcessEvent) (sandbox.Event, bool, error) {
	switch x := m.Event.(type) {
	case *guestv1.ProcessEvent_Output:
		s, err := r.move(x.Output.Stream, x.Output.Offset, int64(len(x.Output.Data)))
		return sandbox.Event{Stream: s, Offset: x.Output.Offset, Data: x.Output.Data}, true, err
	case *guestv1.ProcessEvent_Missed:
		s, err := r.move(x.Missed.Stream, x.Missed.Offset, x.Missed.Bytes)
		return sandbox.Event{Stream: s, Offset: x.Missed.Offset, Missed: x.Missed.Bytes}, true, err
	case *guestv1.ProcessEvent_Exit:
		end := exit(x.Exit)
		return sandbox.Event{Exit: &end}, true, nil
	case *guestv1.ProcessEvent_Started:
		return sandbox.Event{}, false, errors.New("a second start")
	}
	return sandbox.Event{}, false, nil
}

// move advances a stream's place by n bytes that begin at offset.
func (r *processReading) move(stream guestv1.Stream, offset, n int64) (sandbox.Stream, error) {
	name, at := sandbox.Stdout, &r.at.Stdout
	switch stream {
	case guestv1.Stream_STREAM_STDOUT:
	case guestv1.Stream_STREAM_STDERR:
		name, at = sandbox.Stderr, &r.at.Stderr
	default:
		return "", errorf("output of stream %d", stream)
	}
	if offset != *at || n <= 0 {
		return "", errorf("%d bytes of %s at offset %d, where %d is next", n, name, offset, *at)
	}
	next, err := advance(offset, n)
	if err != nil {
		return "", err
	}
	*at = next
	return name, nil
}
