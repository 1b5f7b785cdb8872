package e2b

import (
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// counted is an answer that counts how often it is sent.
type counted struct {
	*httptest.ResponseRecorder
	sent atomic.Int64
}

func (c *counted) Flush() { c.sent.Add(1) }

func TestGathered(t *testing.T) {
	w := &counted{ResponseRecorder: httptest.NewRecorder()}
	g := &gathered{ResponseWriter: w}
	g.Write([]byte("a"))
	g.Flush()
	for end := time.Now().Add(time.Minute); w.sent.Load() == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	if n := w.sent.Load(); n != 1 {
		t.Fatalf("after the first moments it was sent %d times", n)
	}
	g.Write([]byte("b"))
	g.Flush()
	if n := w.sent.Load(); n != 2 {
		t.Errorf("what comes later was sent %d times in all, want 2", n)
	}
	g.complete()
	g.Write([]byte("c"))
	g.Flush()
	g.end()
	if n := w.sent.Load(); n != 2 || w.Body.String() != "abc" {
		t.Errorf("before its end it was sent %d times, with %q", n, w.Body)
	}
	last := &counted{ResponseRecorder: httptest.NewRecorder()}
	g = &gathered{ResponseWriter: last}
	g.complete()
	g.Flush()
	g.end()
	if n := last.sent.Load(); n != 0 {
		t.Errorf("what is over at once was sent %d times before its end", n)
	}
}
