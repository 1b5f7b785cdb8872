package engine

import (
	"context"
	"sync"
)

// locks is a lock for each key. One exists while somebody holds or awaits it.
type locks struct {
	mu  sync.Mutex
	all map[string]*lock
}

type lock struct {
	held  chan struct{} // full while held
	users int
}

// lock waits for the key's lock; unlock must be called once.
func (l *locks) lock(ctx context.Context, key string) (unlock func(), err error) {
	l.mu.Lock()
	if l.all == nil {
		l.all = map[string]*lock{}
	}
	k := l.all[key]
	if k == nil {
		k = &lock{held: make(chan struct{}, 1)}
		l.all[key] = k
	}
	k.users++
	l.mu.Unlock()

	select {
	case k.held <- struct{}{}:
		return func() { <-k.held; l.leave(key, k) }, nil
	case <-ctx.Done():
		l.leave(key, k)
		return nil, context.Cause(ctx)
	}
}

func (l *locks) leave(key string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.all, key)
	}
}
