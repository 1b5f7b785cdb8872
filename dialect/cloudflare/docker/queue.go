package docker

import (
	"net"
	"sync"
)

// queue is the listener of a server whose connections others have accepted.
type queue struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn), done: make(chan struct{})} }

// push hands a connection over; false means that the server has ended.
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

func (q *queue) Addr() net.Addr { return &net.UnixAddr{Name: "inside", Net: "unix"} }
