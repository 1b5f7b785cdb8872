// Package handover is the listener of a server whose connections others have accepted.
package handover

import (
	"net"
	"sync"
)

// Listener gives its server the connections that Push hands over.
type Listener struct {
	name  string
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

var _ net.Listener = (*Listener)(nil)

// New makes a listener whose address is a name.
func New(name string) *Listener {
	return &Listener{name: name, conns: make(chan net.Conn), done: make(chan struct{})}
}

// Push hands a connection over, and waits until the server takes it. False means that
// the listener is closed; then the connection is still the caller's.
func (l *Listener) Push(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.done:
		return false
	}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. A second call does nothing.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return &net.UnixAddr{Name: l.name, Net: "unix"} }
