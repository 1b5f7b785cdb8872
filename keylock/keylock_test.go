package keylock

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
)

// TestOneAtATime has many count under each of some keys.
func TestOneAtATime(t *testing.T) {
	var l Locks
	var all sync.WaitGroup
	counts := make([]int, 8)
	for i := range 400 {
		all.Go(func() {
			n := i % len(counts)
			unlock, err := l.Lock(t.Context(), strconv.Itoa(n))
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			counts[n]++ // the race detector sees two at once
		})
	}
	all.Wait()
	for n, c := range counts {
		if c != 400/len(counts) {
			t.Errorf("key %d was locked %d times", n, c)
		}
	}
	if len(l.all) != 0 {
		t.Errorf("%d locks are left that nobody uses", len(l.all))
	}
}

// TestAWaitEnds with its context, and leaves the lock to others.
func TestAWaitEnds(t *testing.T) {
	var l Locks
	unlock, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the reason")
	cancel(why)
	if _, err := l.Lock(ctx, "k"); !errors.Is(err, why) {
		t.Errorf("the wait ended with %v", err)
	}
	other, err := l.Lock(t.Context(), "another")
	if err != nil {
		t.Fatal(err)
	}
	other()
	unlock()
	again, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	again()
	if len(l.all) != 0 {
		t.Errorf("%d locks are left that nobody uses", len(l.all))
	}
}
