package edge

import (
	"sync"

	"github.com/berth-dev/berth/sandbox"
)

// slots bounds the requests that are under way to one sandbox: one that never
// answers must not use up the server.
type slots struct {
	most int

	mu    sync.Mutex
	taken map[sandbox.ID]int
}

// take takes a slot, or reports that there is none. give is to be called once.
func (s *slots) take(id sandbox.ID) (give func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taken == nil {
		s.taken = map[sandbox.ID]int{}
	}
	if s.taken[id] >= s.most {
		return nil, false
	}
	s.taken[id]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.taken[id]--; s.taken[id] == 0 {
			delete(s.taken, id)
		}
	}, true
}
