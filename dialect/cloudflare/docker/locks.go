package docker

import (
	"context"
	"sync"
)

// locks are one lock a name, there as long as somebody wants it.
type locks struct {
	mu  sync.Mutex
	all map[string]*place
}

type place struct {
	turn  chan struct{}
	wants int
}

// lock takes the lock of a name, or gives up with ctx.
func (l *locks) lock(ctx context.Context, name string) (unlock func(), err error) {
	l.mu.Lock()
	if l.all == nil {
		l.all = map[string]*place{}
	}
	p := l.all[name]
	if p == nil {
		p = &place{turn: make(chan struct{}, 1)}
		l.all[name] = p
	}
	p.wants++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if p.wants--; p.wants == 0 {
			delete(l.all, name)
		}
	}
	select {
	case p.turn <- struct{}{}:
		return func() { <-p.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}

// board tells whoever waits for a name that something may have happened.
type board struct {
	mu  sync.Mutex
	all map[string]*notice
}

type notice struct {
	happened chan struct{}
	readers  int
}

// watch returns a channel that is closed at the next news of a name. done is to be
// called once it is no longer looked at.
func (b *board) watch(name string) (happened <-chan struct{}, done func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.all == nil {
		b.all = map[string]*notice{}
	}
	n := b.all[name]
	if n == nil {
		n = &notice{happened: make(chan struct{})}
		b.all[name] = n
	}
	n.readers++
	return n.happened, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if n.readers--; n.readers == 0 && b.all[name] == n {
			delete(b.all, name)
		}
	}
}

// post tells the news of a name.
func (b *board) post(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := b.all[name]; n != nil {
		close(n.happened)
		delete(b.all, name)
	}
}
