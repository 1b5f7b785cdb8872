package guest

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/guestapi"
)

const (
	prefaceTime = 5 * time.Second // for a connection to say who it is
	maxUnknown  = 64              // connections that have not said so yet
)

// door is a listener that gives out the host's connections only. Whatever else
// knocks is closed without a byte.
type door struct {
	net.Listener
	peer     string
	admitted chan net.Conn
	unknown  chan struct{} // one token for each connection being checked

	ctx    context.Context
	cancel context.CancelFunc
	shut   func() error // closes the listener, once
	wg     sync.WaitGroup

	mu     sync.Mutex
	secret guestapi.Secret
	inside map[*guestConn]struct{} // admitted and not yet closed
}

// guestConn is a connection that was admitted.
type guestConn struct {
	net.Conn
	of *door
}

func (c *guestConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.inside, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func newDoor(l net.Listener, secret guestapi.Secret, peer string) *door {
	d := &door{Listener: l, secret: secret, peer: peer, inside: map[*guestConn]struct{}{},
		admitted: make(chan net.Conn), unknown: make(chan struct{}, maxUnknown)}
	d.shut = sync.OnceValue(l.Close)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.wg.Go(d.run)
	return d
}

// Accept returns the next connection of the host's.
func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.admitted:
		return c, nil
	case <-d.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Close ends the door and everything that waits before it.
func (d *door) Close() error {
	d.cancel()
	err := d.shut()
	d.wg.Wait()
	return err
}

func (d *door) run() {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			// A listener fails for good when it is closed; otherwise the sandbox is
			// out of descriptors or memory, which passes.
			select {
			case <-d.ctx.Done():
				return
			case <-time.After(50 * time.Millisecond):
				continue
			}
		}
		if !d.isPeer(c.RemoteAddr()) {
			c.Close()
			continue
		}
		// More than are being checked wait: they have the host's address, and a host
		// that has much to say opens many at once.
		select {
		case d.unknown <- struct{}{}:
			d.wg.Go(func() { d.check(c) })
		case <-d.ctx.Done():
			c.Close()
			return
		}
	}
}

// check admits c if it begins with the right preface in time.
func (d *door) check(c net.Conn) {
	stop := context.AfterFunc(d.ctx, func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(prefaceTime))
	secret := d.present()
	ok, err := guestapi.ReadPreface(c, secret)
	<-d.unknown
	if err != nil || !ok || !stop() {
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	takeTurns(c)
	in, ok := d.admit(c, secret)
	if !ok {
		c.Close()
		return
	}
	select {
	case d.admitted <- in:
	case <-d.ctx.Done():
		in.Close()
	}
}

// takeTurns tells the engine that an answer will say that its question came. Another kernel
// would wait so for streams of small pieces too, which come no faster then than it says so.
func takeTurns(c net.Conn) {
	t, ok := c.(*net.TCPConn)
	if !ok || !onEngine() {
		return
	}
	if raw, err := t.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, 0) })
	}
}

func (d *door) present() guestapi.Secret {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.secret
}

// admit notes a connection that came with a secret, unless that has changed
// meanwhile.
func (d *door) admit(c net.Conn, secret guestapi.Secret) (*guestConn, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if secret != d.secret {
		return nil, false
	}
	in := &guestConn{c, d}
	d.inside[in] = struct{}{}
	return in, true
}

// change lets in nobody any more but with another secret, and closes all
// connections but one.
func (d *door) change(secret guestapi.Secret, but net.Conn) {
	d.mu.Lock()
	d.secret = secret
	var old []*guestConn
	for c := range d.inside {
		if net.Conn(c) != but {
			old = append(old, c)
		}
	}
	d.mu.Unlock()
	for _, c := range old {
		c.Close()
	}
}

// isPeer reports whether an address may be the host's.
func (d *door) isPeer(a net.Addr) bool {
	if d.peer == "" {
		return true
	}
	got, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return false
	}
	want, err := netip.ParseAddr(d.peer)
	return err == nil && got.Addr().Unmap() == want.Unmap()
}
