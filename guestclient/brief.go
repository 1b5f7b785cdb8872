package guestclient

import (
	"bytes"
	"context"
	"errors"
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

// RoundTrip falls back to the shared connection when too many calls are under way.
func (w *ways) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Context().Value(briefKey{}) == nil {
		return w.shared.RoundTrip(r)
	}
	select {
	case w.busy <- struct{}{}:
	default:
		return w.shared.RoundTrip(r)
	}
	done := sync.OnceFunc(func() { <-w.busy })
	r, err := inMemory(r)
	if err != nil {
		done()
		return nil, err
	}
	resp, err := w.alone.RoundTrip(r)
	if err != nil {
		done()
		return nil, err
	}
	resp.Body = &wholeBody{resp.Body, done}
	return resp, nil
}

// onePacket is the size of a body, in bytes, up to which it is worth a copy.
const onePacket = 32 << 10

// inMemory gives a request whose body is known to be there. Before any other the
// transport sends the header on its own, for the body might be long in coming; the
// guest would wake twice.
func inMemory(r *http.Request) (*http.Request, error) {
	if r.Body == nil || r.ContentLength <= 0 || r.ContentLength > onePacket {
		return r, nil
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	if err := errors.Join(err, r.Body.Close()); err != nil {
		return nil, err
	}
	same := r.WithContext(r.Context())
	same.Body = io.NopCloser(bytes.NewReader(body))
	same.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return same, nil
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
