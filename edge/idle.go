package edge

import (
	"errors"
	"net"
	"sync"
	"time"
)

// idleConn is a connection that is cut once nothing has passed on it, in either
// direction, for a time.
type idleConn struct {
	net.Conn
	most  time.Duration
	timer *time.Timer
	once  sync.Once
}

func watchIdle(c net.Conn, most time.Duration) net.Conn {
	return &idleConn{Conn: c, most: most, timer: time.AfterFunc(most, func() { c.Close() })}
}

func (c *idleConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.timer.Reset(c.most)
	}
	return n, err
}

func (c *idleConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if n > 0 {
		c.timer.Reset(c.most)
	}
	return n, err
}

// Close may be called at any time; a timer that is set anew by a read at the same
// moment closes what is closed already.
func (c *idleConn) Close() error {
	c.once.Do(func() { c.timer.Stop() })
	return c.Conn.Close()
}

// CloseWrite ends what is sent and leaves what comes.
func (c *idleConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
