package api

import (
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// gatherTime is how long the start of a process waits for what follows it: a command
// that is over by then is told of in one packet.
const gatherTime = time.Millisecond

// gathered is a stream of process events that holds back the start for a moment, and
// leaves the exit to the end of the answer, which is near.
type gathered struct {
	to  stream
	out *pacedWriter

	mu    sync.Mutex // held while anything is written
	timer *time.Timer
	held  bool // the start waits
}

func gather(to stream, out *pacedWriter) *gathered { return &gathered{to: to, out: out} }

func (g *gathered) Event(e sandbox.Event) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case e.Started != nil && g.timer == nil:
		g.held, g.out.prompt = true, false
		g.timer = time.AfterFunc(gatherTime, g.release)
	case e.Exit != nil:
		g.out.prompt = false
	default:
		g.held, g.out.prompt = false, true
	}
	return g.to.Event(e)
}

func (g *gathered) KeepAlive() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held, g.out.prompt = false, true
	return g.to.KeepAlive()
}

func (g *gathered) Error(e wire.Error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held, g.out.prompt = false, true
	return g.to.Error(e)
}

// release sends the start. A client that is gone is noticed by the next event, or by
// the end of its request.
func (g *gathered) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held {
		g.held = false
		_ = g.out.rc.Flush()
	}
}

// end returns when nothing touches the answer any more; whoever ends it sends what is
// still held back.
func (g *gathered) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = false
	if g.timer != nil {
		g.timer.Stop()
	}
}
