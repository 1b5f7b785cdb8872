package e2b

import (
	"context"
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

func TestTurns(t *testing.T) {
	var all turns
	leave, err := all.take(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	other, err := all.take(t.Context(), "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := all.take(ctx, "a"); err != context.Canceled {
		t.Errorf("who gave up waiting is told %v", err)
	}
	inside := 1 // counted while the turn is held
	done := make(chan bool)
	for range 20 {
		go func() {
			leave, err := all.take(t.Context(), "a")
			if err == nil {
				inside++
				leave()
			}
			done <- err == nil
		}()
	}
	leave()
	for range 20 {
		if !<-done {
			t.Error("somebody had no turn")
		}
	}
	if inside != 21 || len(all.all) != 0 {
		t.Errorf("%d turns, %d left", inside, len(all.all))
	}
}
