package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// events opens a stream of process events.
func (c *Client) events(ctx context.Context, q call) (sandbox.Events, error) {
	ctx, cancel := context.WithCancel(ctx)
	q.accept = wire.TypeRaw
	resp, err := c.send(ctx, q)
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{ctx: ctx, cancel: cancel, op: q.op, body: resp.Body, frames: wire.NewFrameReader(resp.Body)}, nil
}

// stream is a sandbox.Events over a raw answer.
type stream struct {
	ctx    context.Context
	cancel context.CancelFunc
	op     string
	body   io.ReadCloser
	frames *wire.FrameReader
	ended  atomic.Bool // the exit was given: nothing but the end of the answer follows
	once   sync.Once
	err    error
}

const (
	endTime = time.Second // for an answer to end behind the exit
	endSize = 1 << 10     // bytes that may be left of it
)

func (s *stream) Recv() (sandbox.Event, error) {
	e, err := s.frames.Recv()
	switch {
	case err == nil || errors.Is(err, io.EOF):
		if e.Exit != nil {
			s.ended.Store(true)
		}
		return e, err
	case s.ctx.Err() != nil:
		return e, &sandbox.Error{Op: s.op, Err: context.Cause(s.ctx)}
	}
	return e, &sandbox.Error{Op: s.op, Err: err}
}

// finish reads the answer to its end, which leaves its connection to later calls.
func (s *stream) finish() {
	late := time.AfterFunc(endTime, s.cancel)
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, s.body, endSize) // in vain if the connection broke: nothing more was to come
}

func (s *stream) Close() error {
	s.once.Do(func() {
		if s.ended.Load() {
			s.finish()
		}
		s.cancel()
		s.err = s.body.Close()
	})
	return s.err
}
