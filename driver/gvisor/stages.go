package gvisor

import (
	"sync"
	"time"

	"github.com/berth-dev/berth/driver"
)

// stages is the trace of one verb. Its methods may be called from many
// goroutines.
type stages struct {
	began time.Time

	mu   sync.Mutex
	list []driver.Stage
}

func newStages() *stages { return &stages{began: time.Now()} }

// step begins a stage; what is returned ends it.
func (s *stages) step(name string) (end func()) {
	start := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.list)
	s.list = append(s.list, driver.Stage{Name: name, Start: start.Sub(s.began)})
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.list[n].Took = time.Since(start)
	}
}

// all are the stages so far, in the order of their beginnings.
func (s *stages) all() []driver.Stage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]driver.Stage(nil), s.list...)
}
