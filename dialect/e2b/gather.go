package e2b

import (
	"net/http"
	"sync"
	"time"
)

// gatherTime is how long the start of a process waits for what follows it: a command
// that is over by then is told of in one packet.
const gatherTime = time.Millisecond

// gathered is an answer that holds back what is flushed in its first moments, from the
// first flush on, and what is written before its end.
type gathered struct {
	http.ResponseWriter

	mu    sync.Mutex // held while anything is written
	timer *time.Timer
	open  bool // nothing is held back any more
	whole bool // all is: the answer is about to end
}

// Unwrap is for http.ResponseController.
func (g *gathered) Unwrap() http.ResponseWriter { return g.ResponseWriter }

func (g *gathered) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ResponseWriter.Write(b)
}

// Flush sends what was written, or will.
func (g *gathered) Flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.whole:
	case g.open:
		g.flush()
	case g.timer == nil:
		g.timer = time.AfterFunc(gatherTime, g.release)
	}
}

// flush is called with the lock held. A client that is gone is noticed by the next
// write, or by the end of its request.
func (g *gathered) flush() { _ = http.NewResponseController(g.ResponseWriter).Flush() }

// release sends what waits, and holds nothing back from now on.
func (g *gathered) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open = true; !g.whole {
		g.flush()
	}
}

// complete leaves what is still written to the end of the answer, which is near.
func (g *gathered) complete() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.whole = true
}

// end returns when nothing touches the answer any more.
func (g *gathered) end() {
	g.complete()
	if g.timer != nil {
		g.timer.Stop()
	}
}
