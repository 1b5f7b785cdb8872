package intercept

import (
	"net"
	"sync"
	"time"
)

// queue is the listener of the one server: it hands over connections that others
// have accepted.
type queue struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn), done: make(chan struct{})} }

// push hands a connection to the server; false means that it has ended.
func (q *queue) push(c net.Conn) bool {
	select {
	case q.conns <- c:
		return true
	case <-q.done:
		return false
	}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

func (q *queue) Addr() net.Addr { return &net.UnixAddr{Name: "intercept", Net: "unix"} }

// lent is a connection that belongs to another: closing it tells when it is no
// longer needed, and lets nothing pass from then on.
type lent struct {
	steady
	session *session
	done    chan struct{}
	once    sync.Once
}

func (c *lent) Close() error {
	c.once.Do(func() {
		c.SetDeadline(time.Unix(1, 0)) // wakes who reads or writes
		close(c.done)
	})
	return nil
}

// steady is a connection on which no single write takes longer than stallTime:
// a peer that does not read holds nothing for ever.
type steady struct{ net.Conn }

func (c steady) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(stallTime)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
