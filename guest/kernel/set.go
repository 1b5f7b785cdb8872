package kernel

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Bounds on contexts and runs.
const (
	maxContexts = 64
	maxEnded    = 256 // runs that are remembered
)

// Why something cannot be had.
var (
	ErrNoContext  = errors.New("no such context")
	ErrFull       = errors.New("too many runs wait")
	ErrCrowded    = errors.New("too many contexts")
	ErrTaken      = errors.New("the name is taken")
	ErrNoSetter   = errors.New("variables of one run cannot be set in this language")
	ErrOtherSpeak = errors.New("the context speaks another language")
)

// Set is all contexts of a sandbox. Its methods may be called at once.
type Set struct {
	mu       sync.Mutex
	closed   bool
	contexts []*Context // in the order of their creation
	spare    *spare     // nil: none
	made     int        // ids count up
	ran      int
	live     map[string]*Run
	ended    []*Run // oldest first
	wg       sync.WaitGroup
}

// NewSet makes an empty one.
func NewSet() *Set { return &Set{live: map[string]*Run{}} }

// Create makes a context and returns once its kernel is ready. One that does not
// start leaves no context.
func (s *Set) Create(ctx context.Context, o Options) (*Context, error) {
	c, _, err := s.open(o, false)
	if err != nil {
		return nil, err
	}
	if err := c.Restart(ctx); err != nil {
		s.Remove(c)
		return nil, err
	}
	return c, nil
}

// Default gives the context of a name, made if there is none. Its first run starts
// the kernel.
func (s *Set) Default(o Options) (*Context, error) {
	c, _, err := s.open(o, true)
	return c, err
}

// open makes a context, or with get gives the one of its name.
func (s *Set) open(o Options, get bool) (c *Context, made bool, err error) {
	if c := s.Find(o.Name); c != nil && get {
		return c, false, nil
	}
	spec, err := find(Specs(o.Folders), o.Language)
	if err != nil {
		return nil, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.find(o.Name); c != nil && get {
		return c, false, nil
	} else if c != nil {
		return nil, false, ErrTaken
	}
	switch {
	case s.closed:
		return nil, false, ErrNoContext
	case len(s.contexts) >= maxContexts:
		return nil, false, ErrCrowded
	}
	s.made++
	c = &Context{ID: "k" + strconv.Itoa(s.made), Options: o, Spec: spec, Created: time.Now(), used: time.Now(), spare: s.take,
		wake: make(chan struct{}, 1), halt: make(chan string, 1), over: make(chan struct{})}
	if c.Options.Name == "" {
		c.Options.Name = c.ID
	}
	s.contexts = append(s.contexts, c)
	s.wg.Go(c.serve)
	return c, true, nil
}

// Find gives the context of an id or a name, or nil.
func (s *Set) Find(key string) *Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(key)
}

func (s *Set) find(key string) *Context {
	for _, c := range s.contexts {
		if key != "" && (c.ID == key || c.Options.Name == key) {
			return c
		}
	}
	return nil
}

// List gives all contexts in the order of their creation.
func (s *Set) List() []*Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.contexts)
}

// Remove ends a context and returns when nothing of it is left.
func (s *Set) Remove(c *Context) {
	s.mu.Lock()
	s.contexts = slices.DeleteFunc(s.contexts, func(o *Context) bool { return o == c })
	s.mu.Unlock()
	c.close()
	<-c.over
}

// Run queues code in a context.
func (s *Set) Run(c *Context, code string, env map[string]string, timeout time.Duration) (*Run, error) {
	if len(env) > 0 && setters[c.Spec.Language] == nil {
		return nil, ErrNoSetter
	}
	r := &Run{Context: c, code: code, env: env, timeout: timeout, log: newLog(), cancel: make(chan string, 1), over: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrNoContext
	}
	s.ran++
	r.ID = "r" + strconv.Itoa(s.ran)
	if err := c.enqueue(r); err != nil {
		return nil, err
	}
	s.live[r.ID] = r
	s.wg.Go(func() {
		<-r.over // its context ends it, at the latest when it is closed
		s.retire(r)
	})
	return r, nil
}

// retire remembers a run that has ended, and forgets the oldest beyond the bounds.
func (s *Set) retire(r *Run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.live, r.ID)
	s.ended = append(s.ended, r)
	if extra := len(s.ended) - maxEnded; extra > 0 {
		s.ended = slices.Delete(s.ended, 0, extra)
	}
	total := 0
	for _, old := range slices.Backward(s.ended) {
		size := old.log.bytes()
		if total+size > endedBytes {
			old.log.forget()
			continue
		}
		total += size
	}
}

// FindRun gives a run that has not been forgotten, or nil.
func (s *Set) FindRun(id string) *Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.live[id]; r != nil {
		return r
	}
	for _, r := range s.ended {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// Languages lists what the kernels beneath folders run.
func Languages(folders []string) []string { return languages(Specs(folders)) }

// Ports are those that kernels listen on for their contexts: nobody else's concern.
func (s *Set) Ports() map[uint16]bool {
	all := map[uint16]bool{}
	for _, c := range s.List() {
		c.mu.Lock()
		for _, port := range c.ports {
			all[port] = true
		}
		c.mu.Unlock()
	}
	s.mu.Lock()
	p := s.spare
	s.mu.Unlock()
	if p != nil {
		for _, port := range p.listens() {
			all[port] = true
		}
	}
	return all
}

// Live gives the runs that have not ended.
func (s *Set) Live() []*Run {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Run, 0, len(s.live))
	for _, r := range s.live {
		all = append(all, r)
	}
	return all
}

// Close ends every context and returns when nothing is left of them.
func (s *Set) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.contexts
	s.contexts = nil
	if s.spare != nil {
		s.spare.drop()
	}
	s.mu.Unlock()
	for _, c := range all {
		c.close()
	}
	s.wg.Wait()
}
