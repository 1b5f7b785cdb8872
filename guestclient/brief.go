package guestclient

import (
	"context"
	"io"
	"net/http"
	"sync"
)

// briefCalls is how many calls have a connection of their own at a time; those
// beyond share one.
const briefCalls = 32

// briefKey marks, in a context, a call that may have a connection of its own.
type briefKey struct{}

func briefly(ctx context.Context) context.Context {
	return context.WithValue(ctx, briefKey{}, true)
}

// ways carries each call as suits it. Over HTTP/1.1 a request is one packet and an
// answer another, and the guest answers in the goroutine that read it: half the work
// of HTTP/2, where any number of calls share a connection, and silence is noticed.
type ways struct {
	shared http.RoundTripper
	alone  http.RoundTripper
	busy   chan struct{} // a token for each call that alone carries
}

// RoundTrip falls back to the shared connection for what is large, and when too many calls
// are under way.
func (w *ways) RoundTrip(r *http.Request) (*http.Response, error) {
	if !isBrief(r) {
		return w.shared.RoundTrip(r)
	}
	select {
	case w.busy <- struct{}{}:
	default:
		return w.shared.RoundTrip(r)
	}
	done := sync.OnceFunc(func() { <-w.busy })
	resp, err := w.alone.RoundTrip(r)
	if err != nil {
		done()
		return nil, err
	}
	resp.Body = &wholeBody{resp.Body, done}
	return resp, nil
}

// onePacket is the size of a body, in bytes, that alone carries at most.
const onePacket = 32 << 10

// isBrief reports whether a request may have a connection of its own: it is small, and its
// body is known to be there.
func isBrief(r *http.Request) bool {
	return r.Context().Value(briefKey{}) != nil && (r.Body == nil || r.ContentLength > 0 && r.ContentLength <= onePacket)
}

// wholeBody reads what little is left before it is closed, so that the connection
// can be used again.
type wholeBody struct {
	io.ReadCloser
	done func()
}

// leftOver bounds what is read for that.
const leftOver = 1 << 10

func (b *wholeBody) Close() error {
	defer b.done()
	_, _ = io.CopyN(io.Discard, b.ReadCloser, leftOver) // in vain if the call was given up
	return b.ReadCloser.Close()
}
