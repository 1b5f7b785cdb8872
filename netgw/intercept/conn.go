package intercept

import (
	"net"
	"sync"
	"time"
)

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
