package guest

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"

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
	secret   guestapi.Secret
	peer     string
	admitted chan net.Conn
	unknown  chan struct{} // one token for each connection being checked

	ctx    context.Context
	cancel context.CancelFunc
	shut   func() error // closes the listener, once
	wg     sync.WaitGroup
}

func newDoor(l net.Listener, secret guestapi.Secret, peer string) *door {
	d := &door{Listener: l, secret: secret, peer: peer,
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
		select {
		case d.unknown <- struct{}{}:
			d.wg.Go(func() { d.check(c) })
		default:
			c.Close()
		}
	}
}

// check admits c if it begins with the right preface in time.
func (d *door) check(c net.Conn) {
	stop := context.AfterFunc(d.ctx, func() { c.Close() })
	c.SetReadDeadline(time.Now().Add(prefaceTime))
	ok, err := guestapi.ReadPreface(c, d.secret)
	<-d.unknown
	if err != nil || !ok || !stop() {
		c.Close()
		return
	}
	c.SetReadDeadline(time.Time{})
	select {
	case d.admitted <- c:
	case <-d.ctx.Done():
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
