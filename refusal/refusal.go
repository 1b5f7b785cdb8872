// Package refusal lets an answer be heard that is given before all of a request's body
// has come.
package refusal

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	lingerTime = 5 * time.Second // how long a body is read that nobody wants
	maxHeld    = 64 << 10        // bytes of an answer that waits for its end
)

// Heard serves as next does. If next has not read all of a body, the rest that is on
// its way is read too, until the client has the answer and stops, for lingerTime at most.
//
// That is for HTTP/1.1 with "Expect: 100-continue" alone: net/http closes such a
// connection without delay, and the reset that follows, for bytes that nobody has read,
// overtakes the answer. For other requests it waits a while itself.
func Heard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Header.Get("Expect") == "" {
			next.ServeHTTP(w, r)
			return
		}
		body := &watched{ReadCloser: r.Body}
		seen := *r
		seen.Body = body
		a := &answer{ResponseWriter: w}
		next.ServeHTTP(a, &seen)
		if a.passed {
			return // it may not be whole before this handler has returned
		}
		if unread := body.begun && !body.over; !unread {
			a.pass()
			return
		}
		// With its length it is whole for the client as soon as it is sent.
		w.Header().Set("Content-Length", strconv.Itoa(len(a.held)))
		w.Header().Set("Connection", "close")
		a.pass()
		linger(w, r.Body)
	})
}

// linger sends the answer and reads on. What fails here has failed for the connection,
// which ends anyway.
func linger(w http.ResponseWriter, body io.Reader) {
	c := http.NewResponseController(w)
	if c.Flush() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.Copy(io.Discard, body)
	}
}

// watched is a body that knows how far it was read.
type watched struct {
	io.ReadCloser
	begun bool // so the client sends it
	over  bool // or broken
}

func (b *watched) Read(p []byte) (int, error) {
	b.begun = true
	n, err := b.ReadCloser.Read(p)
	b.over = b.over || err != nil && !errors.Is(err, http.ErrBodyReadAfterClose)
	return n, err
}

// Close leaves the body open for what is still to be read of it.
func (b *watched) Close() error { return nil }

// answer holds a short answer back until it is known whether all of the body was read.
type answer struct {
	http.ResponseWriter
	status int // 0: not said yet
	held   []byte
	passed bool // what comes goes on at once
}

func (a *answer) WriteHeader(status int) {
	switch {
	case a.passed || status < 200:
		a.ResponseWriter.WriteHeader(status)
	case a.status == 0:
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	if !a.passed && len(a.held)+len(p) <= maxHeld {
		a.held = append(a.held, p...)
		return len(p), nil
	}
	if err := a.pass(); err != nil {
		return 0, err
	}
	return a.ResponseWriter.Write(p)
}

// pass gives on what was held back, and from now on all at once.
func (a *answer) pass() error {
	if a.passed {
		return nil
	}
	a.passed = true
	if a.status != 0 {
		a.ResponseWriter.WriteHeader(a.status)
	}
	held := a.held
	a.held = nil
	if len(held) == 0 {
		return nil
	}
	_, err := a.ResponseWriter.Write(held)
	return err
}

// FlushError is for http.ResponseController.
func (a *answer) FlushError() error {
	if err := a.pass(); err != nil {
		return err
	}
	return http.NewResponseController(a.ResponseWriter).Flush()
}

// Flush implements http.Flusher.
func (a *answer) Flush() { _ = a.FlushError() }

// Unwrap is for http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
