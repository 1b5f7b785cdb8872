// Package keylock has locks that are told apart by name, and made and forgotten as they
// are used.
package keylock

import (
	"context"
	"sync"
)

// Locks is a lock for each key. One exists while somebody holds or awaits it. The zero value
// is ready.
type Locks struct {
	mu  sync.Mutex
	all map[string]*lock
}

type lock struct {
	held  chan struct{} // full while held
	users int
}

// Lock waits for the key's lock, which unlock, called once, gives back. When ctx ends first
// the error is its cause.
func (l *Locks) Lock(ctx context.Context, key string) (unlock func(), err error) {
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

func (l *Locks) leave(key string, k *lock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if k.users--; k.users == 0 {
		delete(l.all, key)
	}
}
