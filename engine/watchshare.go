package engine

import (
	"sync"

	"github.com/berth-dev/berth/sandbox"
)

// shareWatch knows whom a change of who may reach a port concerns: those who are
// there.
type shareWatch struct {
	mu  sync.Mutex
	all map[sharedPort]map[*func()]struct{}
}

type sharedPort struct {
	id   sandbox.ID
	port int
}

// WatchShare has changed called after each change of who may reach a port, before the
// verb that makes it returns, until stop is called. changed must wait for nobody. To
// miss no change a door watches first and asks Admit then, and again in changed.
func (e *Engine) WatchShare(id sandbox.ID, port int, changed func()) (stop func()) {
	w, at := &e.shareWatch, sharedPort{id, port}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = map[sharedPort]map[*func()]struct{}{}
	}
	if w.all[at] == nil {
		w.all[at] = map[*func()]struct{}{}
	}
	w.all[at][&changed] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if delete(w.all[at], &changed); len(w.all[at]) == 0 {
			delete(w.all, at)
		}
	}
}

// tell calls those who watch a port.
func (w *shareWatch) tell(id sandbox.ID, port int) {
	w.mu.Lock()
	var there []func()
	for f := range w.all[sharedPort{id, port}] {
		there = append(there, *f)
	}
	w.mu.Unlock()
	for _, changed := range there {
		changed()
	}
}
