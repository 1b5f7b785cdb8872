package gvisor

import "time"

// How long no engine is started ahead of who may want one.
const (
	hasteRest = 100 * time.Millisecond // after the last verb that is in haste: a first command follows at once
	hasteMost = time.Second            // in all, however many such verbs follow one another
)

// haste knows when somebody waits for a machine: what is started ahead then takes from
// him, for all that it comes after all others. It is of those who hold the shelf's lock.
type haste struct {
	under int       // verbs under way
	since time.Time // when the first of them began; zero: nothing is put off
	over  time.Time // when the last of them ended
}

func (h *haste) begin(now time.Time) {
	if h.since.IsZero() {
		h.since = now
	}
	h.under++
}

func (h *haste) end(now time.Time) {
	h.under--
	h.over = now
}

// left is how long nothing is to be started yet.
func (h *haste) left(now time.Time) time.Duration {
	if h.since.IsZero() {
		return 0
	}
	until := h.since.Add(hasteMost)
	if h.under == 0 {
		rested := h.over.Add(hasteRest)
		if !rested.After(now) {
			h.since = time.Time{}
			return 0
		}
		if rested.Before(until) {
			until = rested
		}
	}
	return max(0, until.Sub(now))
}

// yield says that somebody waits for a machine until end is called.
func (s *shelf) yield() (end func()) {
	if s == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.haste.begin(time.Now())
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.haste.end(time.Now())
		s.stir()
	}
}
