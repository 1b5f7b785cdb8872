package guestclient

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/guestapi"
)

// inline is an HTTP/1.1 transport whose caller writes the request and reads the answer
// himself. That of the standard library has two goroutines for each connection, for answers
// that come before a body has gone and for connections that end while nobody uses them; to
// hand a short call to one and its answer back from the other wakes threads, beside a sandbox
// that wants the processor in that moment. Bodies go out whole, so they are small.
type inline struct {
	dial func(context.Context) (net.Conn, error)

	mu   sync.Mutex
	idle []*lane // the one that was used last is the next
}

// lane is a connection of one call at a time.
type lane struct {
	of    *inline
	conn  net.Conn
	in    *bufio.Reader
	size  *guestapi.Bounded // of what in reads
	bell  *time.Timer       // closes it when it has been idle for long
	frame bytes.Buffer
}

// quieter is a connection that knows whether it is open and nothing has come.
type quieter interface{ Quiet() bool }

// isQuiet reports whether a connection that nobody uses is open still, and nothing has come
// that nobody asked for. Of one that is neither a socket nor tells a call finds out.
func isQuiet(c net.Conn) bool {
	if q, ok := c.(quieter); ok {
		return q.Quiet()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	var errno error
	err = raw.Control(func(fd uintptr) {
		_, _, errno = unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return err == nil && errno == unix.EAGAIN
}

// RoundTrip implements http.RoundTripper.
func (t *inline) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	l, err := t.take(ctx)
	if err != nil {
		return nil, errors.Join(err, closeBody(r))
	}
	stop := context.AfterFunc(ctx, func() { l.conn.Close() })
	resp, err := l.ask(r)
	if err != nil {
		stop()
		l.conn.Close()
		return nil, orCause(ctx, err)
	}
	resp.Body = &answer{ReadCloser: resp.Body, ctx: ctx, lane: l, stop: stop, again: !resp.Close}
	return resp, nil
}

// orCause is why a call failed: what ended its context closed its connection.
func orCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func closeBody(r *http.Request) error {
	if r.Body == nil {
		return nil
	}
	return r.Body.Close()
}

// take gives a connection that nobody uses, or a new one.
func (t *inline) take(ctx context.Context) (*lane, error) {
	for {
		t.mu.Lock()
		n := len(t.idle)
		if n == 0 {
			t.mu.Unlock()
			break
		}
		l := t.idle[n-1]
		t.idle = t.idle[:n-1]
		t.mu.Unlock()
		l.bell.Stop()
		if isQuiet(l.conn) {
			return l, nil
		}
		l.conn.Close()
	}
	c, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	l := &lane{of: t, conn: c, size: &guestapi.Bounded{R: c}}
	l.in = bufio.NewReader(l.size)
	l.bell = time.AfterFunc(idleTime, l.tire)
	l.bell.Stop()
	return l, nil
}

// give keeps a connection for a later call.
func (t *inline) give(l *lane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.idle) == briefCalls {
		l.conn.Close()
		return
	}
	l.bell.Reset(idleTime)
	t.idle = append(t.idle, l)
}

// tire closes a connection that nobody has used for long.
func (l *lane) tire() {
	t := l.of
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, other := range t.idle {
		if other == l {
			t.idle = append(t.idle[:i], t.idle[i+1:]...)
			l.conn.Close()
			return
		}
	}
}

// CloseIdleConnections closes those that no call uses.
func (t *inline) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.idle {
		l.bell.Stop()
		l.conn.Close()
	}
	t.idle = nil
}

// ask sends a request, in one piece, and reads the header of its answer.
func (l *lane) ask(r *http.Request) (*http.Response, error) {
	l.frame.Reset()
	if err := r.Write(&l.frame); err != nil {
		return nil, err
	}
	if _, err := l.conn.Write(l.frame.Bytes()); err != nil {
		return nil, err
	}
	l.size.Left = maxHeader + l.in.Size()
	defer func() { l.size.Left = 0 }()
	return http.ReadResponse(l.in, r)
}

// answer is the body of an answer. Once it has been read to its end its connection may
// carry another call.
type answer struct {
	io.ReadCloser
	ctx   context.Context
	lane  *lane
	stop  func() bool
	again bool // the guest keeps the connection open

	mu   sync.Mutex
	over bool // the connection is another call's, or closed
}

func (a *answer) Read(b []byte) (int, error) {
	n, err := a.ReadCloser.Read(b)
	switch {
	case err == io.EOF:
		a.end(a.again)
	case err != nil:
		err = orCause(a.ctx, err)
	}
	return n, err
}

// Close gives up what has not been read. A Read that waits returns an error.
func (a *answer) Close() error {
	a.end(false)
	return nil
}

func (a *answer) end(whole bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return
	}
	a.over = true
	if !a.stop() || !whole || a.lane.in.Buffered() > 0 {
		a.lane.conn.Close()
		return
	}
	a.lane.of.give(a.lane)
}
