package engine

import (
	"sync"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// PoolConfig says how many machines run ahead of the creates that will want
// them. The zero value means none.
type PoolConfig struct {
	Floor   int           // of each kind that was asked for within Lapse
	Ceiling int           // of each kind, however many are asked for
	Most    int           // of all kinds; 0 means 4 times Ceiling
	Lapse   time.Duration // a kind that nobody asked for this long has none; 0 means 10 minutes
	Quiet   time.Duration // how long after a create none is made, which would slow its first command; 0 means 300 ms

	// Available tells the bytes of memory that the host can still give. Below
	// Reserve none is made, below half of it those that wait are ended. Nil means
	// that there is always enough.
	Available func() (int64, error)
	Reserve   int64 // bytes
}

// demandWindow is the time over which creates are counted: as many as came in
// it may come again.
const demandWindow = time.Minute

// maxKinds bounds how many are remembered: callers choose them.
const maxKinds = 64

// kind is what a machine cannot change any more once it runs.
type kind struct {
	class, image string
	snapshot     sandbox.ID     // that it goes on from; "" if it has booted
	limits       sandbox.Limits // a field that can change is 0
}

// warm is a machine that runs for nobody yet. Its id is the sandbox's to be.
type warm struct {
	id      sandbox.ID
	kind    kind
	limits  sandbox.Limits
	machine driver.Machine
	guest   *guestclient.Client // over a connection that has been used
	leave   func()              // ends the watch of it
	base    base                // of its template
	settled bool                // it has been prepared for code, or need not be
}

// shelf is what there is of one kind.
type shelf struct {
	template string // by which its root is found
	limits   sandbox.Limits
	ready    []*warm     // the oldest first
	asked    []time.Time // within demandWindow, at most as many as the ceiling
	last     time.Time
	failures int
	retry    time.Time // not before this
}

// pool keeps the machines that wait. It has no record of them: after a crash
// they are swept like anything that no sandbox owns, so none is handed out twice.
type pool struct {
	config PoolConfig
	poke   chan struct{} // told when there may be something to make

	mu      sync.Mutex
	closed  bool
	shelves map[kind]*shelf
	busy    time.Time // of the last create
}

func newPool(c PoolConfig) *pool {
	if c.Most == 0 {
		c.Most = 4 * c.Ceiling
	}
	if c.Lapse == 0 {
		c.Lapse = 10 * time.Minute
	}
	if c.Quiet == 0 {
		c.Quiet = 300 * time.Millisecond
	}
	return &pool{config: c, poke: make(chan struct{}, 1), shelves: map[kind]*shelf{}}
}

func (p *pool) enabled() bool { return p.config.Ceiling > 0 }

// take hands out a machine of a kind, the one that has waited longest, or nil.
// Either way it is remembered that one was asked for.
func (p *pool) take(k kind, template string, limits sandbox.Limits, now time.Time) *warm {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[k]
	if s == nil {
		if len(p.shelves) >= maxKinds {
			return nil
		}
		s = &shelf{}
		p.shelves[k] = s
	}
	s.template, s.limits, s.last, p.busy = template, limits, now, now
	if s.asked = append(s.asked, now); len(s.asked) > p.config.Ceiling {
		s.asked = s.asked[1:]
	}
	signal(p.poke)
	if len(s.ready) == 0 {
		return nil
	}
	w := s.ready[0]
	s.ready = s.ready[1:]
	w.leave()
	return w
}

// put adds a machine that was made; false means that it is not wanted any more.
func (p *pool) put(w *warm) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[w.kind]
	if s == nil || p.closed {
		return false
	}
	s.ready = append(s.ready, w)
	s.failures, s.retry = 0, time.Time{}
	return true
}

// lost takes out a machine that has ended; false means that somebody has it.
func (p *pool) lost(w *warm) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[w.kind]
	if s == nil {
		return false
	}
	for i, o := range s.ready {
		if o == w {
			s.ready = append(s.ready[:i], s.ready[i+1:]...)
			return true
		}
	}
	return false
}

// failed puts the next try of a kind off, the longer the more tries failed.
func (p *pool) failed(k kind, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shelves[k]; s != nil {
		s.failures = min(s.failures+1, 6)
		s.retry = now.Add(time.Second << s.failures)
	}
}

// order is a machine to make.
type order struct {
	kind     kind
	template string
	limits   sandbox.Limits
}

// lacking names a machine to make now, or says when to look again; 0 means when
// told to.
func (p *pool) lacking(now time.Time) (o order, again time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if rest := p.busy.Add(p.config.Quiet).Sub(now); rest > 0 {
		return o, rest, false
	}
	total, least := 0, 0
	for k, s := range p.shelves {
		total += len(s.ready)
		want := p.want(s, now)
		if len(s.ready) >= want {
			continue
		}
		if rest := s.retry.Sub(now); rest > 0 {
			if again == 0 || rest < again {
				again = rest
			}
			continue
		}
		// The one that lacks most, in proportion, comes first.
		if share := len(s.ready) * 1000 / want; !ok || share < least {
			o, least, ok = order{k, s.template, s.limits}, share, true
		}
	}
	return o, again, ok && total < p.config.Most
}

// unsettled gives one that waits and has not been prepared for code yet, the one that
// goes first, or nil. It is given once.
func (p *pool) unsettled(now time.Time) *warm {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.busy) < p.config.Quiet {
		return nil
	}
	for _, s := range p.shelves {
		for _, w := range s.ready {
			if !w.settled {
				w.settled = true
				return w
			}
		}
	}
	return nil
}

// want is how many of a kind there should be.
func (p *pool) want(s *shelf, now time.Time) int {
	for len(s.asked) > 0 && now.Sub(s.asked[0]) > demandWindow {
		s.asked = s.asked[1:]
	}
	if now.Sub(s.last) > p.config.Lapse {
		return 0
	}
	return min(max(p.config.Floor, len(s.asked)), p.config.Ceiling)
}

// surplus takes out those that are no longer wanted: more than there should be
// of their kind, or of a kind for which keep is false. With all set that is
// every one.
func (p *pool) surplus(now time.Time, all bool, keep func(kind) bool) (out []*warm) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, s := range p.shelves {
		n := p.want(s, now)
		gone := all || !keep(k)
		if gone {
			n = 0
		}
		if extra := len(s.ready) - n; extra > 0 {
			out = append(out, s.ready[:extra]...)
			s.ready = append([]*warm(nil), s.ready[extra:]...)
		}
		if (gone && !all) || (n == 0 && now.Sub(s.last) > p.config.Lapse) {
			delete(p.shelves, k)
		}
	}
	for _, w := range out {
		w.leave()
	}
	return out
}

// close empties the pool for good.
func (p *pool) close() (out []*warm) {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.surplus(time.Time{}, true, nil)
}

// size is how many wait.
func (p *pool) size() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.shelves {
		n += len(s.ready)
	}
	return n
}

// uses reports whether one that waits runs on a root.
func (p *pool) uses(image string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, s := range p.shelves {
		if k.image == image && len(s.ready) > 0 {
			return true
		}
	}
	return false
}

// signal leaves one token in a channel of one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
