package gvisor

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// Shells says how many engines wait ahead of the machines that will want them. The
// zero value means none.
type Shells struct {
	Most int // of all kinds

	// Available tells the bytes of memory that the host can still give. Below
	// Reserve none is started, below half of it those that wait are ended. Nil means
	// that there is always enough.
	Available func() (int64, error)
	Reserve   int64 // bytes

	Logger *slog.Logger // told what cannot be started; nil tells nobody
}

// How the demand for shells is judged.
const (
	shellWindow = time.Minute      // as many as were wanted in it may be wanted again, and one more
	shellLapse  = 10 * time.Minute // a kind that nobody wanted this long has none
	shellLook   = 5 * time.Second  // how often to look when nothing tells to
	shellRetry  = 10 * time.Second // after a start that failed
	shellsLeast = 2                // of a kind that is not lapsed: one may be wanted right after another
	shellKinds  = 64               // that are remembered
)

// shelf keeps the shells that wait. They are in no record: after a crash they are
// swept like any machine that nobody owns, so none serves twice.
type shelf struct {
	d      *Driver
	config Shells
	poke   chan struct{} // told when there may be something to start
	cancel context.CancelFunc
	done   chan struct{} // closed when keep has returned

	mu    sync.Mutex
	kinds map[kind]*demand
	under int // that are being started
	haste haste
}

// demand is what there is of one kind, and what was wanted of it.
type demand struct {
	ready    []*shell    // the oldest first
	starting []*starting // that nobody waits for; the oldest first
	asked    []time.Time
	last     time.Time
	retry    time.Time // not before this
}

// newShelf returns a shelf that is tended until close. Nil keeps nothing.
func newShelf(d *Driver, c Shells) *shelf {
	if c.Most <= 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	s := &shelf{d: d, config: c, poke: make(chan struct{}, 1), cancel: cancel, done: make(chan struct{}), kinds: map[kind]*demand{}}
	if s.config.Logger == nil {
		s.config.Logger = slog.New(slog.DiscardHandler)
	}
	go s.keep(ctx)
	return s
}

// close ends all that wait.
func (s *shelf) close() {
	if s == nil {
		return
	}
	s.cancel()
	<-s.done
}

// take hands out a shell of a kind, or nil. Either way one was wanted.
func (s *shelf) take(k kind) *shell {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	w := s.demand(k, now)
	if w == nil {
		return nil
	}
	if w.asked = append(w.asked, now); len(w.asked) > s.config.Most {
		w.asked = w.asked[1:]
	}
	return w.pick()
}

// pick takes out one that is ready, or nil.
func (w *demand) pick() *shell {
	if len(w.ready) == 0 {
		return nil
	}
	sh := w.ready[0]
	w.ready = w.ready[1:]
	return sh
}

// expect says that a shell of a kind may be wanted soon.
func (s *shelf) expect(k kind) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.demand(k, time.Now())
}

// demand is that for a kind; nil if there are too many kinds.
func (s *shelf) demand(k kind, now time.Time) *demand {
	w := s.kinds[k]
	if w == nil {
		if len(s.kinds) >= shellKinds {
			return nil
		}
		w = &demand{}
		s.kinds[k] = w
	}
	w.last = now
	s.stir()
	return w
}

// stir makes keep look.
func (s *shelf) stir() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// keep lets shells be started, as many at once as there are processors, and ends those
// that are too many.
func (s *shelf) keep(ctx context.Context) {
	defer close(s.done)
	var under sync.WaitGroup
	look := time.NewTimer(shellLook)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			under.Wait()
			s.endAll(s.surplus(time.Now(), true))
			return
		case <-look.C:
		case <-s.poke:
		}
		look.Reset(s.tend(ctx, &under))
	}
}

// tend does one thing and says when to look again.
func (s *shelf) tend(ctx context.Context, under *sync.WaitGroup) time.Duration {
	scarce, dire := s.pressure()
	s.endAll(s.surplus(time.Now(), dire))
	if scarce {
		return shellLook
	}
	k, st, again := s.lacking(time.Now())
	if st == nil {
		return again
	}
	under.Go(func() { s.start(ctx, k, st) })
	return 0
}

// pressure says whether the host has too little memory for more, and whether it
// needs back what the waiting ones hold. Not to know is to have none.
func (s *shelf) pressure() (scarce, dire bool) {
	if s.config.Available == nil {
		return false, false
	}
	n, err := s.config.Available()
	if err != nil {
		s.config.Logger.Warn("look at the host's memory", "error", err)
		return true, false
	}
	return n < s.config.Reserve, n < s.config.Reserve/2
}

// lacking names a kind of which one is to be started now, which is counted from then
// on, or says when to look again.
func (s *shelf) lacking(now time.Time) (k kind, st *starting, again time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again = shellLook
	total, least, found := s.under, 0, false
	for _, w := range s.kinds {
		total += len(w.ready)
	}
	for one, w := range s.kinds {
		want := s.want(w, now)
		switch have := len(w.ready) + len(w.starting); {
		case have >= want:
		case w.retry.After(now):
			again = min(again, w.retry.Sub(now))
		default:
			// The one that lacks most, in proportion, comes first.
			if share := have * 1000 / want; !found || share < least {
				k, least, found = one, share, true
			}
		}
	}
	if !found || total >= s.config.Most || s.under >= runtime.NumCPU() {
		return k, nil, again
	}
	if left := s.haste.left(now); left > 0 {
		return k, nil, min(again, left)
	}
	st = newStarting()
	s.under++
	s.kinds[k].starting = append(s.kinds[k].starting, st)
	return k, st, 0
}

// want is how many of a kind there should be.
func (s *shelf) want(w *demand, now time.Time) int {
	for len(w.asked) > 0 && now.Sub(w.asked[0]) > shellWindow {
		w.asked = w.asked[1:]
	}
	if now.Sub(w.last) > shellLapse {
		return 0
	}
	return min(max(shellsLeast, len(w.asked)+1), s.config.Most)
}

// surplus takes out those that are no longer wanted; with all, every one.
func (s *shelf) surplus(now time.Time, all bool) (out []*shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, w := range s.kinds {
		n := s.want(w, now)
		if all {
			n = 0
		}
		if extra := len(w.ready) - n; extra > 0 {
			out = append(out, w.ready[:extra]...)
			w.ready = append([]*shell(nil), w.ready[extra:]...)
		}
		if n == 0 && len(w.ready)+len(w.starting) == 0 && now.Sub(w.last) > shellLapse {
			delete(s.kinds, k)
		}
	}
	return out
}

// put gives a kind one that is ready. The caller holds the lock.
func (s *shelf) put(k kind, sh *shell) {
	if w := s.kinds[k]; w != nil {
		w.ready = append(w.ready, sh)
		return
	}
	s.kinds[k] = &demand{ready: []*shell{sh}} // surplus, which the next look ends
}

// endAll ends shells. What cannot be ended now is swept by the next server.
func (s *shelf) endAll(all []*shell) {
	ctx, cancel := context.WithTimeout(context.Background(), undoTime)
	defer cancel()
	for _, sh := range all {
		sh.close()
		if err := sh.end(ctx); err != nil {
			s.config.Logger.Warn("end an engine that waited", "engine", sh.id, "error", err)
		}
	}
}

// waiting is how many wait.
func (s *shelf) waiting() (n int) {
	if s == nil {
		return 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.kinds {
		n += len(w.ready)
	}
	return n
}
