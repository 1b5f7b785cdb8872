package guest

import (
	"context"
	"net/http"
	"sync"
	"time"
)

// gatherTime is how long an answer is held back that may soon be whole: most
// commands end within it, and then one packet tells all about them.
const gatherTime = 10 * time.Millisecond

// gathering holds back what an answer flushes in its first moments.
type gathering struct {
	http.ResponseWriter
	begun time.Time // when the request came

	mu    sync.Mutex
	timer *time.Timer
	asked bool // something waits
	open  bool // nothing is held back any more
	whole bool // everything is: the answer is about to end
}

// gatherKey is the context's key of the gathering.
type gatherKey struct{}

// gather serves next with answers that are held back.
func gather(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g := &gathering{ResponseWriter: w, begun: time.Now()}
		g.timer = time.AfterFunc(gatherTime, g.release)
		defer g.end()
		next.ServeHTTP(g, r.WithContext(context.WithValue(r.Context(), gatherKey{}, g)))
	})
}

// gatheringOf is that of a request; nil if it has none.
func gatheringOf(ctx context.Context) *gathering {
	g, _ := ctx.Value(gatherKey{}).(*gathering)
	return g
}

func (g *gathering) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.ResponseWriter.Write(b)
}

func (g *gathering) Flush() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.asked = true; g.open && !g.whole {
		g.flush()
	}
}

// flush is called with the lock held.
func (g *gathering) flush() { _ = http.NewResponseController(g.ResponseWriter).Flush() }

// release sends what waits, and holds nothing back from now on.
func (g *gathering) release() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open = true; g.asked && !g.whole {
		g.flush()
	}
}

// complete leaves what is still written to the end of the answer, which is near.
func (g *gathering) complete() {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.whole = true
}

// end returns when the timer does not touch the answer any more.
func (g *gathering) end() {
	g.timer.Stop()
	g.complete()
}
