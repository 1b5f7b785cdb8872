package image

import (
	"context"
	"sync"
)

// keyedLock is one lock a key. The zero value is ready.
type keyedLock struct {
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the holder lets go
}

// lock waits until no other holds key, or until ctx ends.
func (k *keyedLock) lock(ctx context.Context, key string) (unlock func(), err error) {
	for {
		k.mu.Lock()
		other, taken := k.held[key]
		if !taken {
			mine := make(chan struct{})
			if k.held == nil {
				k.held = map[string]chan struct{}{}
			}
			k.held[key] = mine
			k.mu.Unlock()
			return func() {
				k.mu.Lock()
				delete(k.held, key)
				k.mu.Unlock()
				close(mine)
			}, nil
		}
		k.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
