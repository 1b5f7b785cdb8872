package guestclient

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"connectrpc.com/connect"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/guestapi/v1/guestv1connect"
	"github.com/berth-dev/berth/sandbox"
)

// maxSeed bounds the bytes that draw a screen: the largest screen, each cell with
// colours and marks of its own, and all that scrolled off.
const maxSeed = 256 << 20

// terminalEvents is one stream of a terminal's events, held to their order.
type terminalEvents struct {
	op      string
	ctx     context.Context
	cancel  context.CancelFunc
	in      terminalStream
	first   *sandbox.TerminalEvent // Attached, until it has been given
	at      int64
	placed  bool  // at is known
	seeding int64 // bytes of a seed that are still to come

	recv sync.Mutex // held by Recv
	end  error      // what every later Recv returns
}

// openTerminal begins a stream and waits for its first event, so that what the
// guest refuses is an error here.
func openTerminal(ctx context.Context, op string, c guestv1connect.TerminalsClient, q *guestv1.AttachTerminalRequest) (sandbox.TerminalEvents, error) {
	e := &terminalEvents{op: op, at: q.Offset, placed: q.Resume}
	e.ctx, e.cancel = context.WithCancel(ctx)
	late := time.AfterFunc(callTime, e.cancel)
	in, err := c.Attach(e.ctx, connect.NewRequest(q))
	if err == nil {
		e.in = in
		e.first, err = e.attached()
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

func (e *terminalEvents) attached() (*sandbox.TerminalEvent, error) {
	if !e.in.Receive() {
		if err := e.in.Err(); err != nil {
			return nil, failed(e.ctx, e.op, err)
		}
		return nil, broken(e.op, "a stream without events")
	}
	m := e.in.Msg().GetAttached()
	if m == nil {
		return nil, broken(e.op, "the first event is not the attachment")
	}
	t, err := terminal(m)
	if err != nil {
		return nil, broken(e.op, "%w", err)
	}
	return &sandbox.TerminalEvent{Attached: &t}, nil
}

// Recv returns the next event.
func (e *terminalEvents) Recv() (sandbox.TerminalEvent, error) {
	e.recv.Lock()
	defer e.recv.Unlock()
	if e.first != nil {
		ev := *e.first
		e.first = nil
		return ev, nil
	}
	if e.end != nil {
		return sandbox.TerminalEvent{}, e.end
	}
	ev, err := e.next()
	switch {
	case err != nil:
		e.end = err
	case ev.Exit != nil:
		e.end = io.EOF
	}
	if e.end != nil {
		e.cancel()
	}
	return ev, err
}

func (e *terminalEvents) next() (sandbox.TerminalEvent, error) {
	for e.in.Receive() {
		switch m := e.in.Msg().Event.(type) {
		case *guestv1.TerminalEvent_KeepAlive, nil: // nil: of a kind that this build does not know
		case *guestv1.TerminalEvent_SeedData:
			return e.seedData(m.SeedData)
		default:
			if e.seeding > 0 {
				return sandbox.TerminalEvent{}, broken(e.op, "a seed that lacks %d bytes", e.seeding)
			}
			return e.take(e.in.Msg())
		}
	}
	if err := e.in.Err(); err != nil {
		return sandbox.TerminalEvent{}, failed(e.ctx, e.op, err)
	}
	if e.ctx.Err() != nil {
		return sandbox.TerminalEvent{}, &sandbox.Error{Op: e.op, Err: e.ctx.Err()}
	}
	return sandbox.TerminalEvent{}, sandbox.Errorf(e.op, sandbox.Unavailable, "the stream ended before the terminal: %w", io.ErrUnexpectedEOF)
}

func (e *terminalEvents) take(m *guestv1.TerminalEvent) (sandbox.TerminalEvent, error) {
	switch {
	case m.GetSeed() != nil:
		return e.seed(m.GetSeed())
	case m.GetOutput() != nil:
		return e.output(m.GetOutput())
	case m.GetResized() != nil:
		size := m.GetResized()
		if err := checkedSize(size.Cols, size.Rows); err != nil {
			return sandbox.TerminalEvent{}, broken(e.op, "%w", err)
		}
		return sandbox.TerminalEvent{Resized: &sandbox.TerminalSize{Cols: int(size.Cols), Rows: int(size.Rows)}}, nil
	case m.GetExit() != nil:
		x := exit(m.GetExit())
		return sandbox.TerminalEvent{Exit: &x}, nil
	}
	return sandbox.TerminalEvent{}, broken(e.op, "a second attachment")
}

func (e *terminalEvents) seed(s *guestv1.Seed) (sandbox.TerminalEvent, error) {
	if err := checkedSize(s.Cols, s.Rows); err != nil {
		return sandbox.TerminalEvent{}, broken(e.op, "%w", err)
	}
	if s.Bytes < 0 || s.Bytes > maxSeed || s.Offset < 0 || (e.placed && s.Offset < e.at) {
		return sandbox.TerminalEvent{}, broken(e.op, "a seed of %d bytes at offset %d", s.Bytes, s.Offset)
	}
	e.at, e.placed, e.seeding = s.Offset, true, s.Bytes
	return sandbox.TerminalEvent{Seed: &sandbox.TerminalSeed{Offset: s.Offset, Bytes: s.Bytes, Cols: int(s.Cols), Rows: int(s.Rows)}}, nil
}

func (e *terminalEvents) seedData(b []byte) (sandbox.TerminalEvent, error) {
	if len(b) == 0 || int64(len(b)) > e.seeding {
		return sandbox.TerminalEvent{}, broken(e.op, "%d bytes of a seed that lacks %d", len(b), e.seeding)
	}
	e.seeding -= int64(len(b))
	return sandbox.TerminalEvent{Seeding: true, Data: b}, nil
}

func (e *terminalEvents) output(o *guestv1.TerminalOutput) (sandbox.TerminalEvent, error) {
	if !e.placed || o.Offset != e.at || len(o.Data) == 0 {
		return sandbox.TerminalEvent{}, broken(e.op, "%d bytes at offset %d, where %d is next", len(o.Data), o.Offset, e.at)
	}
	next, err := advance(o.Offset, int64(len(o.Data)))
	if err != nil {
		return sandbox.TerminalEvent{}, broken(e.op, "%w", err)
	}
	e.at = next
	return sandbox.TerminalEvent{Offset: o.Offset, Data: o.Data}, nil
}

// Close ends the stream. A Recv that waits returns an error.
func (e *terminalEvents) Close() error {
	e.cancel()
	e.recv.Lock()
	defer e.recv.Unlock()
	if e.end == nil {
		e.end = sandbox.Errorf(e.op, sandbox.Unavailable, "the stream is closed: %w", errors.New("closed"))
	}
	if e.in != nil {
		e.in.Close()
		e.in = nil
	}
	return nil
}
