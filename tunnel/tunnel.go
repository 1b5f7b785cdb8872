// Package tunnel carries a TCP connection as the messages of a WebSocket, which
// passes where a bare connection does not.
//
// A binary message is bytes of the stream; the text message "eof" ends the
// sender's direction and leaves the other one. A connection that closes without it
// was cut.
package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// Protocol is the subprotocol of the WebSocket.
const Protocol = "berth.tunnel.v1"

const (
	eof        = "eof"
	maxMessage = 1 << 20 // bytes
	buffer     = 32 << 10
)

// Conn is a net.Conn over a WebSocket. Deadlines are not supported: Close ends a
// call that waits.
type Conn struct {
	ws *websocket.Conn

	reading sync.Mutex
	message io.Reader // the rest of the binary message that is being read
	over    bool      // the other side has ended its direction

	once sync.Once
}

var _ net.Conn = (*Conn)(nil)

// New takes over a WebSocket that speaks Protocol.
func New(ws *websocket.Conn) *Conn {
	ws.SetReadLimit(maxMessage)
	return &Conn{ws: ws}
}

// Read reads bytes of the stream; io.EOF says that the other side has ended its
// direction, any other error that the connection is cut.
func (c *Conn) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	for !c.over {
		if c.message == nil {
			if err := c.next(); err != nil {
				return 0, err
			}
			continue
		}
		n, err := c.message.Read(p)
		if errors.Is(err, io.EOF) {
			c.message, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	return 0, io.EOF
}

// next begins the next message.
func (c *Conn) next() error {
	kind, r, err := c.ws.Reader(context.Background()) // ends with Close
	if err != nil {
		return cut(err)
	}
	if kind == websocket.MessageBinary {
		c.message = r
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(r, int64(len(eof))+1))
	if err != nil {
		return cut(err)
	}
	if string(b) != eof {
		return fmt.Errorf("read tunnel: the message %.20q is not of its protocol", b)
	}
	c.over = true
	return nil
}

func cut(err error) error { return fmt.Errorf("read tunnel: %w", err) }

// Write sends bytes of the stream.
func (c *Conn) Write(p []byte) (int, error) {
	for sent := 0; sent < len(p); {
		part := p[sent:min(len(p), sent+maxMessage)]
		if err := c.ws.Write(context.Background(), websocket.MessageBinary, part); err != nil {
			return sent, fmt.Errorf("write tunnel: %w", err)
		}
		sent += len(part)
	}
	return len(p), nil
}

// CloseWrite ends what is sent and leaves what comes.
func (c *Conn) CloseWrite() error {
	return c.ws.Write(context.Background(), websocket.MessageText, []byte(eof))
}

// Close ends the connection at once.
func (c *Conn) Close() error {
	c.once.Do(func() { _ = c.ws.CloseNow() }) // the other side sees the end either way
	return nil
}

// Ping finds out that the other side has gone, and keeps proxies on the way from
// taking the silence for an end, until ctx ends. Somebody must be reading.
func (c *Conn) Ping(ctx context.Context, every, answer time.Duration) error {
	bell := time.NewTicker(every)
	defer bell.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-bell.C:
		}
		bound, cancel := context.WithTimeout(ctx, answer)
		err := c.ws.Ping(bound)
		cancel()
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("ping tunnel: %w", err)
		}
	}
}

type address struct{}

func (address) Network() string { return "websocket" }
func (address) String() string  { return "tunnel" }

// LocalAddr says that this is a tunnel.
func (c *Conn) LocalAddr() net.Addr { return address{} }

// RemoteAddr says that this is a tunnel.
func (c *Conn) RemoteAddr() net.Addr { return address{} }

// SetDeadline is not supported.
func (c *Conn) SetDeadline(time.Time) error { return errors.ErrUnsupported }

// SetReadDeadline is not supported.
func (c *Conn) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

// SetWriteDeadline is not supported.
func (c *Conn) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// Join passes bytes both ways until both sides have ended theirs, one has broken
// or ctx ends; then both are closed. The end of one direction is passed on alone.
// The result is what broke, or nil.
func Join(ctx context.Context, a, b net.Conn) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(ctx, func() { a.Close(); b.Close() })
	defer func() { stop(); a.Close(); b.Close() }()
	pass := func(to, from net.Conn) {
		if err := carry(to, from); err != nil {
			cancel(err)
		}
	}
	var both sync.WaitGroup
	both.Go(func() { pass(a, b) })
	both.Go(func() { pass(b, a) })
	both.Wait()
	return context.Cause(ctx)
}

// carry copies one direction and ends it. Nothing else is called on the source, so
// that no optimisation of io.Copy hides which side broke.
func carry(to, from net.Conn) error {
	if _, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, buffer)); err != nil {
		return err
	}
	half, ok := to.(interface{ CloseWrite() error })
	if !ok {
		return to.Close()
	}
	if err := half.CloseWrite(); err != nil && !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}
