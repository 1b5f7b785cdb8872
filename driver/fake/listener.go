package fake

import (
	"context"
	"net"
	"sync"

	"github.com/berth-dev/berth/sandbox"
)

// listener takes connections through memory.
type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once

	mu   sync.Mutex
	shut chan struct{}  // closed while nobody is let in
	open map[*conn]bool // the host's ends
}

func newListener() *listener {
	return &listener{conns: make(chan net.Conn), done: make(chan struct{}), shut: make(chan struct{}), open: map[*conn]bool{}}
}

// conn is the host's end of a connection.
type conn struct {
	net.Conn
	l *listener
}

func (c *conn) Close() error {
	c.l.mu.Lock()
	delete(c.l.open, c)
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// cut breaks every connection and lets nobody in until admit.
func (l *listener) cut() {
	l.mu.Lock()
	close(l.shut)
	all := l.open
	l.open = map[*conn]bool{}
	l.mu.Unlock()
	for c := range all {
		c.Conn.Close()
	}
}

func (l *listener) admit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shut = make(chan struct{})
}

// keep notes a connection, unless nobody is let in any more.
func (l *listener) keep(c net.Conn, shut chan struct{}) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-shut:
		c.Close()
		return nil, errEnded()
	default:
	}
	k := &conn{c, l}
	l.open[k] = true
	return k, nil
}

func errEnded() error { return sandbox.Errorf("", sandbox.Unavailable, "the machine has ended") }

// dial gives the listener one end of a pipe and returns the other.
func (l *listener) dial(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	shut := l.shut
	l.mu.Unlock()
	select {
	case <-shut:
		return nil, errEnded()
	default:
	}
	ours, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		return l.keep(ours, shut)
	case <-l.done:
		return nil, errEnded()
	case <-shut:
		return nil, errEnded()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "pipe"} }
