package guestclient

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// events is one stream of a process's events, held to their order: Started,
// output whose offsets leave no gap untold, then Exit.
type events struct {
	op     string
	ctx    context.Context
	cancel context.CancelFunc
	in     *connect.ServerStreamForClient[guestv1.ProcessEvent]
	at     sandbox.Offsets
	first  *sandbox.Event // Started, until it has been given

	mute bool // the guest was silent for too long

	recv sync.Mutex // held by Recv
	end  error      // what every later Recv returns
}

const (
	silence = 90 * time.Second // of a guest that is to say every 15 s that it lives
	endTime = time.Second      // for a stream to end behind the exit
)

// open begins a stream and waits for its first event, so that what the guest
// refuses is an error here.
func open[Q any](ctx context.Context, op string, f func(context.Context, *connect.Request[Q]) (*connect.ServerStreamForClient[guestv1.ProcessEvent], error), q *Q, from sandbox.Offsets) (sandbox.Events, error) {
	e := &events{op: op, at: from}
	e.ctx, e.cancel = context.WithCancel(ctx)
	late := time.AfterFunc(callTime, e.cancel)
	in, err := f(e.ctx, connect.NewRequest(q))
	if err == nil {
		e.in = in
		e.first, err = e.started()
	} else {
		err = failed(e.ctx, op, err)
	}
	if !late.Stop() && ctx.Err() == nil {
		err = sandbox.Errorf(op, sandbox.Timeout, "the guest did not answer in %v", callTime)
	}
	if err != nil {
		e.Close()
		return nil, err
	}
	return e, nil
}

// started receives the first event.
func (e *events) started() (*sandbox.Event, error) {
	if !e.in.Receive() {
		if err := e.in.Err(); err != nil {
			return nil, failed(e.ctx, e.op, err)
		}
		return nil, broken(e.op, "a stream without events")
	}
	m := e.in.Msg().GetStarted()
	if m == nil {
		return nil, broken(e.op, "the first event is not the start")
	}
	p, err := process(m)
	if err != nil {
		return nil, broken(e.op, "%w", err)
	}
	return &sandbox.Event{Started: &p}, nil
}

// Recv returns the next event.
func (e *events) Recv() (sandbox.Event, error) {
	e.recv.Lock()
	defer e.recv.Unlock()
	if e.first != nil {
		ev := *e.first
		e.first = nil
		return ev, nil
	}
	if e.end != nil {
		return sandbox.Event{}, e.end
	}
	ev, err := e.next()
	switch {
	case err != nil:
		e.end = err
	case ev.Exit != nil:
		e.finish()
		e.end = io.EOF
	}
	if e.end != nil {
		e.cancel()
	}
	return ev, err
}

// finish reads the stream to its end, which leaves its connection to others.
func (e *events) finish() {
	late := time.AfterFunc(endTime, e.cancel)
	defer late.Stop()
	e.in.Receive()
	e.in.Close()
	e.in = nil
}

// receive waits for a message of the guest's, for as long as it may be silent.
func (e *events) receive() bool {
	late := time.AfterFunc(silence, e.cancel)
	got := e.in.Receive()
	e.mute = !late.Stop()
	return got
}

func (e *events) next() (sandbox.Event, error) {
	for e.receive() {
		m := e.in.Msg()
		switch {
		case m.GetKeepAlive() != nil:
			continue
		case m.GetOutput() != nil:
			return e.output(m.GetOutput())
		case m.GetMissed() != nil:
			return e.missed(m.GetMissed())
		case m.GetExit() != nil:
			x := exit(m.GetExit())
			return sandbox.Event{Exit: &x}, nil
		case m.GetStarted() != nil:
			return sandbox.Event{}, broken(e.op, "a second start")
		}
		// An event of a kind that this build does not know: a newer guest's.
	}
	if e.mute {
		return sandbox.Event{}, sandbox.Errorf(e.op, sandbox.Unavailable, "the guest said nothing for %v", silence)
	}
	if err := e.in.Err(); err != nil {
		return sandbox.Event{}, failed(e.ctx, e.op, err)
	}
	if e.ctx.Err() != nil {
		return sandbox.Event{}, &sandbox.Error{Op: e.op, Err: e.ctx.Err()}
	}
	return sandbox.Event{}, sandbox.Errorf(e.op, sandbox.Unavailable, "the stream ended before the process: %w", io.ErrUnexpectedEOF)
}

func (e *events) output(o *guestv1.Output) (sandbox.Event, error) {
	s, err := e.move(o.Stream, o.Offset, int64(len(o.Data)))
	if err != nil {
		return sandbox.Event{}, err
	}
	return sandbox.Event{Stream: s, Offset: o.Offset, Data: o.Data}, nil
}

func (e *events) missed(m *guestv1.Missed) (sandbox.Event, error) {
	s, err := e.move(m.Stream, m.Offset, m.Bytes)
	if err != nil {
		return sandbox.Event{}, err
	}
	return sandbox.Event{Stream: s, Offset: m.Offset, Missed: m.Bytes}, nil
}

// move advances a stream's place by n bytes that begin at offset.
func (e *events) move(stream guestv1.Stream, offset, n int64) (sandbox.Stream, error) {
	name, at := sandbox.Stdout, &e.at.Stdout
	switch stream {
	case guestv1.Stream_STREAM_STDOUT:
	case guestv1.Stream_STREAM_STDERR:
		name, at = sandbox.Stderr, &e.at.Stderr
	default:
		return "", broken(e.op, "output of stream %d", stream)
	}
	if offset != *at || n <= 0 {
		return "", broken(e.op, "%d bytes of %s at offset %d, where %d is next", n, name, offset, *at)
	}
	next, err := advance(offset, n)
	if err != nil {
		return "", broken(e.op, "%w", err)
	}
	*at = next
	return name, nil
}

// Close ends the stream. A Recv that waits returns an error.
func (e *events) Close() error {
	e.cancel()
	e.recv.Lock()
	defer e.recv.Unlock()
	if e.end == nil {
		e.end = sandbox.Errorf(e.op, sandbox.Unavailable, "the stream is closed: %w", errClosed)
	}
	if e.in != nil {
		e.in.Close()
		e.in = nil
	}
	return nil
}

var errClosed = errors.New("closed")
