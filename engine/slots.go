package engine

import (
	"context"
	"fmt"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/berth-dev/berth/sandbox"
)

// slots bounds how many creates run at once and how many wait. The wait is
// first come, first served.
type slots struct {
	free    *semaphore.Weighted
	queue   int64
	running atomic.Int64
	waiting atomic.Int64
}

func newSlots(creates, queue int) *slots {
	return &slots{free: semaphore.NewWeighted(int64(creates)), queue: int64(queue)}
}

// take waits for a slot; give must be called once. A full queue is Exhausted.
func (s *slots) take(ctx context.Context) (give func(), err error) {
	if !s.free.TryAcquire(1) {
		if err := s.wait(ctx); err != nil {
			return nil, err
		}
	}
	s.running.Add(1)
	return func() {
		s.running.Add(-1)
		s.free.Release(1)
	}, nil
}

func (s *slots) wait(ctx context.Context) error {
	defer s.waiting.Add(-1)
	if n := s.waiting.Add(1); n > s.queue {
		return &sandbox.Error{Op: "wait for a turn", Kind: sandbox.Exhausted,
			Err:  fmt.Errorf("%d wait already", s.queue),
			Hint: "try again in a moment, with fewer at once"}
	}
	if s.free.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	return nil
}
