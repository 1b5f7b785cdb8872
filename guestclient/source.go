package guestclient

import (
	"errors"
	"io"
	"sync/atomic"
)

// bodySource is an upload's body. It remembers its own error, which the
// transport would report as one of the connection's. Once closed it is not read
// any more; a read that waits then is the one that cannot be taken back.
type bodySource struct {
	in     io.Reader
	way    *uploadWay // nil: the bytes go over the link
	broken atomic.Pointer[error]
	closed atomic.Bool
}

// Read is the transport's: what it gives goes over the link.
func (b *bodySource) Read(p []byte) (int, error) {
	if b.way != nil {
		return b.way.read(b, p)
	}
	return b.take(p)
}

// take reads the body.
func (b *bodySource) take(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, errClosed
	}
	n, err := b.in.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.broken.Store(&err)
	}
	return n, err
}

// Close ends the reading; the reader itself is its owner's to close.
func (b *bodySource) Close() error {
	b.closed.Store(true)
	return nil
}

// failure is the reader's own error, or nil.
func (b *bodySource) failure() error {
	if err := b.broken.Load(); err != nil {
		return *err
	}
	return nil
}
