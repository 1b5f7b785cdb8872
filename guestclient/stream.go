package guestclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/sandbox"
)

const (
	silence = 90 * time.Second // of a guest that is to say every 15 s that it lives
	endTime = time.Second      // for a stream to end behind its last event
)

var errClosed = errors.New("closed")

// reading takes the messages M of one kind of stream over as events E and holds them
// to their order. Its errors are breaches of the guest's contract.
type reading[M, E any] interface {
	// first takes over the message that the stream begins with.
	first(*M) (E, error)

	// next takes over a later one. False: it says nothing, as a sign of life does, or
	// a message of a kind that this build does not know, a newer guest's.
	next(*M) (E, bool, error)

	// last reports whether an event ends the stream.
	last(E) bool
}

// events is what a stream is to its reader.
type events[E any] interface {
	Recv() (E, error)
	Close() error
}

// stream is one call of the guest's that streams.
type stream[M, E any] struct {
	op     string
	ctx    context.Context
	cancel context.CancelFunc
	in     *connect.ServerStreamForClient[M]
	how    reading[M, E]
	begun  *E   // the first event, until it has been given
	mute   bool // the guest was silent for too long

	recv sync.Mutex // held by Recv
	end  error      // what every later Recv returns
}

// open begins a stream and waits for its first event, so that what the guest refuses
// is an error here.
func open[Q, M, E any](ctx context.Context, op string, f func(context.Context, *connect.Request[Q]) (*connect.ServerStreamForClient[M], error), q *Q, how reading[M, E]) (events[E], error) {
	s := &stream[M, E]{op: op, how: how}
	s.ctx, s.cancel = context.WithCancel(ctx)
	late := time.AfterFunc(callTime, s.cancel)
	in, err := f(s.ctx, connect.NewRequest(q))
	if err == nil {
		s.in = in
		err = s.begin()
	} else {
		err = failed(s.ctx, op, err)
	}
	if !late.Stop() && ctx.Err() == nil {
		err = sandbox.Errorf(op, sandbox.Timeout, "the guest did not answer in %v", callTime)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// begin receives the first event.
func (s *stream[M, E]) begin() error {
	if !s.in.Receive() {
		if err := s.in.Err(); err != nil {
			return failed(s.ctx, s.op, err)
		}
		return broken(s.op, "a stream without events")
	}
	e, err := s.how.first(s.in.Msg())
	if err != nil {
		return broken(s.op, "%w", err)
	}
	s.begun = &e
	return nil
}

// Recv returns the next event.
func (s *stream[M, E]) Recv() (E, error) {
	s.recv.Lock()
	defer s.recv.Unlock()
	var none E
	if s.begun != nil {
		e := *s.begun
		s.begun = nil
		return e, nil
	}
	if s.end != nil {
		return none, s.end
	}
	e, err := s.receive()
	switch {
	case err != nil:
		s.end = err
	case s.how.last(e):
		s.finish()
		s.end = io.EOF
	default:
		return e, nil
	}
	s.cancel()
	return e, err
}

// receive waits for a message that says something.
func (s *stream[M, E]) receive() (E, error) {
	var none E
	for s.message() {
		e, says, err := s.how.next(s.in.Msg())
		if err != nil {
			return none, broken(s.op, "%w", err)
		}
		if says {
			return e, nil
		}
	}
	if s.mute {
		return none, sandbox.Errorf(s.op, sandbox.Unavailable, "the guest said nothing for %v", silence)
	}
	if err := s.in.Err(); err != nil {
		return none, failed(s.ctx, s.op, err)
	}
	if s.ctx.Err() != nil {
		return none, &sandbox.Error{Op: s.op, Err: s.ctx.Err()}
	}
	return none, sandbox.Errorf(s.op, sandbox.Unavailable, "the guest ended the stream early: %w", io.ErrUnexpectedEOF)
}

// message waits for a message of the guest's, for as long as it may be silent.
func (s *stream[M, E]) message() bool {
	late := time.AfterFunc(silence, s.cancel)
	got := s.in.Receive()
	s.mute = !late.Stop()
	return got
}

// finish reads the stream to its end, which leaves its connection to others.
func (s *stream[M, E]) finish() {
	late := time.AfterFunc(endTime, s.cancel)
	defer late.Stop()
	if r, ok := s.how.(interface{ ended(http.Header) }); !s.in.Receive() && ok {
		r.ended(s.in.ResponseTrailer())
	}
	s.in.Close()
	s.in = nil
}

// Close ends the stream. A Recv that waits returns an error.
func (s *stream[M, E]) Close() error {
	s.cancel()
	s.recv.Lock()
	defer s.recv.Unlock()
	if s.end == nil {
		s.end = sandbox.Errorf(s.op, sandbox.Unavailable, "the stream is closed: %w", errClosed)
	}
	if s.in != nil {
		s.in.Close()
		s.in = nil
	}
	return nil
}
