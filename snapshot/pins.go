package snapshot

import (
	"context"
	"sync"
)

// pins says which blobs must not be swept: those that a save under way has
// stored or relies on, and those that any save did since a sweep began.
type pins struct {
	mu       sync.Mutex
	held     map[Sum]int
	touched  map[Sum]bool          // nil while nobody sweeps
	removing map[Sum]chan struct{} // closed when the removal has ended
}

// hold pins a blob. It waits for a removal of it that is under way.
func (p *pins) hold(ctx context.Context, b Sum) error {
	for {
		p.mu.Lock()
		wait, busy := p.removing[b]
		if !busy {
			if p.held == nil {
				p.held = map[Sum]int{}
			}
			p.held[b]++
			if p.touched != nil {
				p.touched[b] = true
			}
			p.mu.Unlock()
			return nil
		}
		p.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (p *pins) drop(all []Sum) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range all {
		if p.held[b]--; p.held[b] <= 0 {
			delete(p.held, b)
		}
	}
}

// watch begins a sweep, of which there is one at a time: from now on a blob that
// is pinned once is spared.
func (p *pins) watch() (end func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.touched = map[Sum]bool{}
	for b := range p.held {
		p.touched[b] = true
	}
	p.removing = map[Sum]chan struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.touched = nil
	}
}

// spared is called with the lock held.
func (p *pins) spared(b Sum) bool { return p.touched[b] || p.held[b] > 0 }

// spares reports whether the sweeper must leave a blob.
func (p *pins) spares(b Sum) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spared(b)
}

// take lets the sweeper remove a blob, unless it is spared. done must be called
// after the removal.
func (p *pins) take(b Sum) (done func(), ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.spared(b) {
		return nil, false
	}
	c := make(chan struct{})
	p.removing[b] = c
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.removing, b)
		close(c)
	}, true
}
