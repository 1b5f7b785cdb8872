package netgw

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// room shares the connections that the server can hold open. A sandbox that has
// more than what is left for all gets no more: so one that opens as many as it
// can leaves half of the room, and two leave a third.
type room struct {
	one, all int

	mu    sync.Mutex
	taken int
}

// enter takes a place for a sandbox that has some already.
func (r *room) enter(has int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if has >= r.one || has >= r.all-r.taken {
		return false
	}
	r.taken++
	return true
}

func (r *room) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken--
}

// limiter is a bucket of tokens: rate a second, burst at most. Its zero value
// lets nothing pass.
type limiter struct {
	rate, burst float64
	now         func() time.Time

	mu     sync.Mutex
	tokens float64
	at     time.Time
	missed int64 // since pass last said yes
}

// pass takes a token if there is one. missed is how often it did not, since it
// last did.
func (l *limiter) pass() (ok bool, missed int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.at.IsZero() {
		l.tokens = l.burst
	} else if d := now.Sub(l.at).Seconds(); d > 0 {
		l.tokens = min(l.burst, l.tokens+d*l.rate)
	}
	l.at = now
	if l.tokens < 1 {
		l.missed++
		return false, 0
	}
	l.tokens--
	missed, l.missed = l.missed, 0
	return true, missed
}

// traffic counts bytes.
type traffic struct{ sent, received atomic.Int64 }

func (t *traffic) read() sandbox.Traffic {
	return sandbox.Traffic{Sent: t.sent.Load(), Received: t.received.Load()}
}

// Counts is what a gateway has done, for metrics.
type Counts struct {
	Open      int64 `json:"open"`      // connections now
	Allowed   int64 `json:"allowed"`   // connections so far
	Denied    int64 `json:"denied"`    // attempts refused by policy or closed to all
	Failed    int64 `json:"failed"`    // attempts whose other end did not answer
	Cut       int64 `json:"cut"`       // connections ended because a policy changed
	Full      int64 `json:"full"`      // attempts beyond the limits of connections
	Questions int64 `json:"questions"` // of DNS
	Refused   int64 `json:"refused"`   // of them
	Sent      int64 `json:"sent"`      // bytes out of sandboxes
	Received  int64 `json:"received"`  // bytes into them
}

type counters struct {
	open, allowed, denied, failed, cut, full, questions, refused atomic.Int64
	traffic
}

func (c *counters) read() Counts {
	return Counts{
		Open: c.open.Load(), Allowed: c.allowed.Load(), Denied: c.denied.Load(), Failed: c.failed.Load(), Cut: c.cut.Load(),
		Full: c.full.Load(), Questions: c.questions.Load(), Refused: c.refused.Load(), Sent: c.sent.Load(), Received: c.received.Load(),
	}
}
