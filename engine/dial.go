package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/sandbox"
)

// Dial opens a TCP connection to a port of a sandbox, which it wakes. The
// connection counts as an activity until it is closed, has a CloseWrite, and
// outlives ctx. Where nothing listens, the error has sandbox.ErrNotListening in
// its chain.
func (e *Engine) Dial(ctx context.Context, id string, port int) (net.Conn, error) {
	op := fmt.Sprintf("connect to port %d", port)
	if err := checkPort(port); err != nil {
		return nil, fail(op, "", err)
	}
	s, l, end, err := e.using(ctx, id, sandbox.ActivityConnection)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	c, err := l.dialPort(ctx, uint16(port))
	if err != nil {
		end()
		return nil, explainDial(ctx, op, s, l, err)
	}
	return &counted{Conn: c, end: end}, nil
}

// Reach is Dial for who counts the activity by Connect: connections that are kept
// for later keep no sandbox awake.
func (e *Engine) Reach(ctx context.Context, id string, port int) (net.Conn, error) {
	op := fmt.Sprintf("connect to port %d", port)
	if err := checkPort(port); err != nil {
		return nil, fail(op, "", err)
	}
	s, l, err := e.running(ctx, id)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	c, err := l.dialPort(ctx, uint16(port))
	return c, explainDial(ctx, op, s, l, err)
}

// explainDial is explain for what may be no more than a server that is missing:
// then the machine lives, for something in it has said so.
func explainDial(ctx context.Context, op string, s *stored, l *live, err error) error {
	if errors.Is(err, sandbox.ErrNotListening) {
		return fail(op, s.ID, err)
	}
	return explain(ctx, op, s, l, err)
}

// checkPort refuses what is no port, and the guest's own.
func checkPort(port int) error {
	if err := sandbox.CheckPort(port); err != nil {
		return err
	}
	if port == guestapi.Port {
		return &sandbox.Error{Op: "check port", Kind: sandbox.Invalid, Err: fmt.Errorf("port %d is Berth's own in every sandbox", port),
			Hint: "let the server listen on another port"}
	}
	return nil
}

// dialPort connects from outside, which is quicker, and through the guest to who
// listens on the loopback alone.
func (l *live) dialPort(ctx context.Context, port uint16) (net.Conn, error) {
	direct, ok := l.machine.(driver.Ports)
	if !ok {
		return l.guest.Tunnel(ctx, port)
	}
	c, err := direct.DialPort(ctx, port)
	if !errors.Is(err, sandbox.ErrNotListening) {
		return c, err
	}
	inside, terr := l.guest.Tunnel(ctx, port)
	if sandbox.KindOf(terr) == sandbox.Unsupported { // an older guest
		return nil, err
	}
	return inside, terr
}

// counted is a connection whose end ends an activity.
type counted struct {
	net.Conn
	end  func()
	once sync.Once
	err  error
}

func (c *counted) Close() error {
	c.once.Do(func() {
		c.err = c.Conn.Close()
		c.end()
	})
	return c.err
}

// CloseWrite ends what is sent and leaves what comes.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
