package account

import (
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

const (
	rateTime = time.Hour
	maxRates = 10_000 // addresses that are remembered
)

// rates counts what was made for each address in the hour since its first.
type rates struct {
	mu  sync.Mutex
	all map[netip.Prefix]rate
}

type rate struct {
	since time.Time
	count int
}

// neighbours is what counts as one address: of IPv6 a /64, which is the least
// that anybody is given.
func neighbours(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, err := a.Prefix(bits)
	if err != nil {
		return netip.Prefix{} // no address: all of those together
	}
	return p
}

// allow counts one, or is Exhausted.
func (r *rates) allow(from netip.Addr, hourly int, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[netip.Prefix]rate{}
	}
	p := neighbours(from)
	one, has := r.all[p]
	if !has || now.Sub(one.since) >= rateTime {
		one = rate{since: now}
	}
	if one.count >= hourly {
		return &sandbox.Error{Op: "check rate", Kind: sandbox.Exhausted, Err: fmt.Errorf("%d were made for this address within an hour", one.count),
			Hint: fmt.Sprintf("try again in %v", (rateTime - now.Sub(one.since)).Round(time.Minute))}
	}
	if !has && len(r.all) >= maxRates {
		r.forget(now)
	}
	one.count++
	r.all[p] = one
	return nil
}

// forget makes room: what has had its time goes, or else the oldest. The bound on
// temporary accounts holds whoever can change address faster than that.
func (r *rates) forget(now time.Time) {
	var oldest netip.Prefix
	first := now
	for p, one := range r.all {
		if now.Sub(one.since) >= rateTime {
			delete(r.all, p)
		} else if !one.since.After(first) {
			oldest, first = p, one.since
		}
	}
	if len(r.all) >= maxRates {
		delete(r.all, oldest)
	}
}
