package e2b

import (
	"sync"

	"github.com/berth-dev/berth/sandbox"
)

// maxKnown is how many ids are remembered.
const maxKnown = 10_000

// known is the ids of sandboxes that were made here, so that a host name of one
// that has gone is answered in these clients' words. What it forgets is answered as
// any other name.
type known struct {
	mu  sync.Mutex
	all map[sandbox.ID]bool
	old []sandbox.ID // in the order of coming
}

func (k *known) add(id sandbox.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all[id] {
		return
	}
	if k.all == nil {
		k.all = map[sandbox.ID]bool{}
	}
	if len(k.old) >= maxKnown {
		delete(k.all, k.old[0])
		k.old = k.old[1:]
	}
	k.all[id], k.old = true, append(k.old, id)
}

func (k *known) has(id sandbox.ID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.all[id]
}
