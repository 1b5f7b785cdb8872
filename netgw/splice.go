package netgw

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A direction of a connection begins with a small buffer and takes a large one
// once it has filled that: most connections are idle, and few carry much.
const (
	smallCopy = 16 << 10
	largeCopy = 256 << 10
)

var (
	smallBuffers = sync.Pool{New: func() any { b := make([]byte, smallCopy); return &b }}
	largeBuffers = sync.Pool{New: func() any { b := make([]byte, largeCopy); return &b }}
)

// splice passes bytes between a sandbox and an upstream. The end of one
// direction leaves the other open; an error of either ends both with a reset.
type splice struct {
	flow  *flow
	guest *guestConn
	up    net.Conn

	down    chan error // of the direction to the sandbox; nil until it has begun
	arrived int64      // bytes that it has passed, once it has ended
}

// download begins the direction to the sandbox.
func (s *splice) download() {
	if s.down != nil {
		return
	}
	s.down = make(chan error, 1)
	go func() {
		n, err := s.pour(func(n int) { s.flow.add(0, n) })
		s.arrived = n
		if err == nil {
			err = s.guest.CloseWrite()
		} else if !errors.Is(err, errStopped) {
			s.reset()
		}
		s.down <- err
	}()
}

// errStopped is the end of a direction that was asked to stop.
var errStopped = errors.New("stopped")

// stopDownload takes the direction to the sandbox back. It reports whether
// nothing has passed by then; if so, nothing is lost.
func (s *splice) stopDownload() bool {
	s.up.SetReadDeadline(time.Unix(1, 0))
	err := <-s.down
	s.up.SetReadDeadline(time.Time{})
	s.down = nil
	return errors.Is(err, errStopped) && s.arrived == 0
}

// run passes the sandbox's bytes, beginning with first, and returns when both
// directions have ended.
func (s *splice) run(first []byte) {
	s.download()
	err := s.upload(first)
	if err != nil {
		s.abort()
		return
	}
	<-s.down
	s.down = nil
}

func (s *splice) upload(first []byte) error {
	if len(first) > 0 {
		if _, err := s.up.Write(first); err != nil {
			return err
		}
		s.flow.add(len(first), 0)
	}
	if err := s.drain(func(n int) { s.flow.add(n, 0) }); err != nil {
		return err
	}
	if c, ok := s.up.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return nil
}

// pour passes the upstream's bytes until their end.
func (s *splice) pour(count func(int)) (int64, error) {
	if socket, ok := socketOf(s.up); ok {
		return s.guest.take(socket, count)
	}
	return pass(s.guest, s.up, count)
}

// drain passes the sandbox's bytes until their end.
func (s *splice) drain(count func(int)) (err error) {
	if socket, ok := socketOf(s.up); ok {
		_, err = s.guest.give(socket, count)
	} else {
		_, err = pass(s.up, s.guest, count)
	}
	return err
}

// abort resets both sides and waits for what still passes.
func (s *splice) abort() {
	s.reset()
	if s.down != nil {
		<-s.down
		s.down = nil
	}
}

func (s *splice) reset() {
	s.guest.abort()
	abort(s.up)
}

// pass copies until from ends, and tells of every piece.
func pass(to io.Writer, from io.Reader, count func(int)) (total int64, err error) {
	pool := &smallBuffers
	p := pool.Get().(*[]byte)
	defer func() { pool.Put(p) }()
	for {
		n, err := from.Read(*p)
		if n > 0 {
			if _, err := to.Write((*p)[:n]); err != nil {
				return total, err
			}
			count(n)
			total += int64(n)
		}
		if err == io.EOF {
			return total, nil
		}
		var late net.Error
		if errors.As(err, &late) && late.Timeout() {
			return total, errStopped
		}
		if err != nil {
			return total, err
		}
		if n == smallCopy && pool == &smallBuffers {
			pool.Put(p)
			pool = &largeBuffers
			p = pool.Get().(*[]byte)
		}
	}
}
