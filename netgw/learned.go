package netgw

import (
	"net/netip"
	"slices"
	"time"
)

// Bounds on what is remembered of the answers that one sandbox was given.
const (
	maxLearned      = 4096 // addresses
	maxNames        = 16   // of one address
	rememberAnswers = time.Hour
)

// learned knows by which names a sandbox has been given an address. It remembers
// beyond the time that the answer was good for: programs do too. The tenant's
// lock guards it.
type learned struct {
	now func() time.Time
	all map[netip.Addr]*known
}

type known struct {
	names []string // the newest last
	until time.Time
}

func (l *learned) add(name string, a netip.Addr, ttl time.Duration) {
	k := l.all[a]
	if k == nil {
		if len(l.all) >= maxLearned {
			l.makeRoom()
		}
		k = &known{}
		l.all[a] = k
	}
	if until := l.now().Add(ttl + rememberAnswers); until.After(k.until) {
		k.until = until
	}
	if i := slices.Index(k.names, name); i >= 0 {
		k.names = slices.Delete(k.names, i, i+1)
	}
	if len(k.names) >= maxNames {
		k.names = slices.Delete(k.names, 0, 1)
	}
	k.names = append(k.names, name)
}

// makeRoom drops what is too old, or else the entry that would be the next.
func (l *learned) makeRoom() {
	now := l.now()
	var oldest netip.Addr
	var at time.Time
	for a, k := range l.all {
		if now.After(k.until) {
			delete(l.all, a)
		} else if at.IsZero() || k.until.Before(at) {
			oldest, at = a, k.until
		}
	}
	if len(l.all) >= maxLearned {
		delete(l.all, oldest)
	}
}

// names returns the names of an address, the newest last.
func (l *learned) names(a netip.Addr) []string {
	k := l.all[a]
	if k == nil || l.now().After(k.until) {
		return nil
	}
	return slices.Clone(k.names)
}
