package kernel

import (
	"context"
	"errors"
	"sync"
	"time"
)

// maxQueued bounds the runs that wait in one context.
const maxQueued = 64

// Options are of a new context.
type Options struct {
	Name     string // "" means its id
	Language string
	Folders  []string          // that kernelspecs lie beneath
	Env      map[string]string // that its kernels begin with, whole
	Cwd      string            // for people, as is User
	User     string
	Starter  Starter
}

// Context is an interpreter that remembers. One goroutine runs what is queued, one
// run at a time; what it alone uses comes first.
type Context struct {
	ID      string
	Options Options
	Spec    Spec
	Created time.Time

	spare func(Spec, Options) *spare // that its set has

	k    *interpreter // nil: none
	news string       // how the last kernel was lost, if no run has been told yet

	wake chan struct{} // told when there is something to do
	halt chan string   // of one: breaks off what runs, its kernel with it
	over chan struct{} // closed when all has ended

	mu       sync.Mutex
	closed   bool
	queue    []*Run
	current  *Run
	restarts []chan error       // who waits for a kernel that begins anew
	abort    context.CancelFunc // breaks off the start of a kernel; nil: none starts
	starting bool
	pid      int
	ports    []uint16 // of the kernel
	reason   string   // how the last kernel was lost
	used     time.Time
	runs     int64
	lost     int64
}

// Info is what can be said of a context now.
type Info struct {
	State    State
	Reason   string
	PID      int
	Running  string
	Queued   int
	Runs     int64
	Restarts int64
	Used     time.Time
}

// State is what a context's kernel does.
type State int

// The states of a context.
const (
	Starting State = iota + 1
	Idle
	Busy
	Dead
)

// Info describes the context.
func (c *Context) Info() Info {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := Info{State: Idle, Reason: c.reason, PID: c.pid, Queued: len(c.queue), Runs: c.runs, Restarts: c.lost, Used: c.used}
	if c.current != nil {
		i.State, i.Running = Busy, c.current.ID
	}
	switch {
	case c.starting:
		i.State = Starting
	case c.pid == 0 && c.reason != "":
		i.State = Dead
	case c.pid == 0:
		i.State = Starting
	}
	return i
}

// enqueue adds a run; an error says why it cannot wait here.
func (c *Context) enqueue(r *Run) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrNoContext
	case len(c.queue) >= maxQueued:
		return ErrFull
	}
	c.queue = append(c.queue, r)
	poke(c.wake)
	return nil
}

// Interrupt breaks off the run that is under way, and reports whether there was one.
func (c *Context) Interrupt() bool {
	c.mu.Lock()
	r := c.current
	c.mu.Unlock()
	if r != nil {
		r.Cancel("it was interrupted")
	}
	return r != nil
}

// Restart ends the kernel and the runs that wait, and returns when a new kernel is
// ready.
func (c *Context) Restart(ctx context.Context) error {
	done := make(chan error, 1)
	if !c.breakOff("the context was restarted", func() { c.restarts = append(c.restarts, done) }) {
		return ErrNoContext
	}
	select {
	case err := <-done:
		return err
	case <-c.over:
		return ErrNoContext
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// close ends the context; it returns at once.
func (c *Context) close() {
	c.breakOff("the context was removed", func() { c.closed = true })
}

// breakOff ends the runs with a reason and changes what comes next; false: the
// context is closed.
func (c *Context) breakOff(why string, change func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	change()
	for _, r := range c.queue {
		r.end(End{Status: Cancelled, Reason: why})
	}
	c.queue = nil
	if c.abort != nil {
		c.abort()
	}
	if c.current != nil {
		select {
		case c.halt <- why:
		default:
		}
	}
	poke(c.wake)
	return true
}

// serve works until the context is closed.
func (c *Context) serve() {
	defer close(c.over)
	for c.step() {
	}
	c.drop("")
}

// step does the next thing that there is to do; false: the context is closed.
func (c *Context) step() bool {
	c.mu.Lock()
	closed, restarts := c.closed, c.restarts
	c.restarts = nil
	var r *Run
	if !closed && len(restarts) == 0 && len(c.queue) > 0 {
		r, c.queue = c.queue[0], c.queue[1:]
		c.current, c.used = r, time.Now()
		select { // what was meant for a run before this one
		case <-c.halt:
		default:
		}
	}
	c.mu.Unlock()
	switch {
	case closed:
		for _, done := range restarts {
			done <- ErrNoContext
		}
		return false
	case len(restarts) > 0:
		c.drop("it was restarted")
		c.news = ""
		err := c.start()
		for _, done := range restarts {
			done <- err
		}
	case r != nil:
		c.settle(r, c.turn(r))
	default:
		c.rest()
	}
	return true
}

// settle ends a run.
func (c *Context) settle(r *Run, e End) {
	c.mu.Lock()
	c.current, c.used = nil, time.Now()
	c.runs++
	c.mu.Unlock()
	r.end(e)
}

// rest waits for something to do, and takes what the kernel says unasked: nobody
// has asked for it.
func (c *Context) rest() {
	var in chan arrival
	var gone <-chan struct{}
	if c.k != nil {
		in, gone = c.k.in, c.k.process.Done()
	}
	select {
	case <-c.wake:
	case a := <-in:
		if a.err != nil {
			c.lose(c.k.broken(a.err).Error())
		}
	case <-gone:
		c.lose("the kernel " + c.k.process.How())
	}
}

// dropCancelled ends the runs that were cancelled before their turn.
func (c *Context) dropCancelled() {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := c.queue[:0]
	for _, r := range c.queue {
		if why := r.cancelled(); why != "" {
			r.end(End{Status: Cancelled, Reason: why})
			continue
		}
		kept = append(kept, r)
	}
	clear(c.queue[len(kept):])
	c.queue = kept
}

// lose notes that the kernel ended while nothing ran: the next run is told.
func (c *Context) lose(why string) {
	c.news = why
	c.drop(why)
}

// drop ends the kernel, if there is one, for a reason.
func (c *Context) drop(why string) {
	if c.k == nil {
		return
	}
	c.k.close()
	c.k = nil
	c.mu.Lock()
	c.pid, c.ports, c.reason = 0, nil, why
	c.lost++
	c.mu.Unlock()
}

// start starts a kernel, or takes the one that was started ahead.
func (c *Context) start() error {
	ctx, cancel := context.WithCancel(context.Background()) // ended by breakOff, and bounded by launch
	defer cancel()
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrNoContext
	}
	c.abort, c.starting, c.ports = cancel, true, nil
	c.mu.Unlock()
	var err error
	k := c.adopt(ctx)
	if k == nil {
		k, err = launch(ctx, c.Spec, c.Options.Starter, c.claim)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.abort, c.starting = nil, false
	if err != nil {
		c.reason = "its kernel did not start: " + err.Error()
		return errors.New(c.reason)
	}
	c.k, c.pid, c.reason = k, k.process.PID(), ""
	return nil
}

// claim notes ports of the kernel that starts.
func (c *Context) claim(ports []uint16) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ports = append(c.ports, ports...)
}

// turn gives a run its turn.
func (c *Context) turn(r *Run) End {
	if why := r.cancelled(); why != "" {
		return End{Status: Cancelled, Reason: why}
	}
	if news := c.news; news != "" {
		c.news = ""
		return End{Status: Died, Reason: news + " before the run: what it remembered is lost, and the next run gets a new one"}
	}
	if c.k == nil {
		if err := c.start(); err != nil {
			return c.unstarted(err)
		}
	}
	if len(r.env) > 0 && !c.k.quietly(setting(c.Spec.Language, r.env, nil, false)) {
		return End{Status: Died, Reason: "the kernel did not take the run's environment"}
	}
	end, dead := execute(c.k, r, c.halt)
	if dead == "" && len(r.env) > 0 && !c.k.quietly(setting(c.Spec.Language, r.env, c.Options.Env, true)) {
		dead = "the kernel did not give up a run's environment"
		c.news = dead
	}
	if dead != "" {
		c.drop(dead)
	}
	return end
}

// unstarted is the end of a run whose kernel did not start.
func (c *Context) unstarted(err error) End {
	select {
	case why := <-c.halt:
		return End{Status: Interrupted, Reason: why}
	default:
		return End{Status: Died, Reason: err.Error()}
	}
}
