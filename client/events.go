package client

import (
	"context"
	"errors"
	"io"
	"sync"

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
	once   sync.Once
	err    error
}

func (s *stream) Recv() (sandbox.Event, error) {
	e, err := s.frames.Recv()
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return e, err
	case s.ctx.Err() != nil:
		return e, &sandbox.Error{Op: s.op, Err: context.Cause(s.ctx)}
	}
	return e, &sandbox.Error{Op: s.op, Err: err}
}

func (s *stream) Close() error {
	s.once.Do(func() {
		s.cancel()
		s.err = s.body.Close()
	})
	return s.err
}
