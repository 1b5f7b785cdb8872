package netgw

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// datagramIdle ends an exchange of datagrams in which nothing moves.
const datagramIdle = 2 * time.Minute

// maxDatagram bounds one datagram.
const maxDatagram = 64 << 10

// datagram serves the first datagram of an exchange. False makes the stack tell
// the sandbox that the port is out of reach. It must not wait: the link's reader
// calls it.
func (l *Link) datagram(r *udp.ForwarderRequest) bool {
	id := r.ID()
	to := netip.AddrPortFrom(addrOf(id.LocalAddress), id.LocalPort)
	if to.Addr().IsMulticast() || to.Addr() == GatewayAddr || to.Addr() == GatewayAddr6 {
		return false
	}
	f, _ := l.gateway.begin(l.ctx, l.tenant, true, to)
	if f == nil {
		return false
	}
	var wq waiter.Queue
	ep, e := r.CreateEndpoint(&wq)
	if e != nil {
		f.finish()
		return false
	}
	l.flows.Go(func() {
		defer f.finish()
		f.exchange(gonet.NewUDPConn(&wq, ep))
	})
	return true
}

// exchange passes datagrams until none has moved for a while, or either side
// fails.
func (f *flow) exchange(guest *gonet.UDPConn) {
	defer guest.Close()
	ctx, cancel := context.WithTimeout(f.ctx, dialTime)
	up, err := f.g.dial(ctx, "udp", f.to.String())
	cancel()
	if err != nil {
		f.fail(err)
		return
	}
	defer up.Close()
	stop := context.AfterFunc(f.ctx, func() { guest.Close(); up.Close() })
	defer stop()
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer guest.Close()
		f.move(guest, up, &last, func(n int) { f.add(0, n) })
	}()
	f.move(up, guest, &last, func(n int) { f.add(n, 0) })
	up.Close()
	<-done
}

// move passes datagrams in one direction.
func (f *flow) move(to, from net.Conn, last *atomic.Int64, count func(int)) {
	b := make([]byte, maxDatagram)
	for {
		from.SetReadDeadline(time.Unix(0, last.Load()).Add(datagramIdle))
		n, err := from.Read(b)
		if err != nil {
			if ne, ok := err.(net.Error); ok && ne.Timeout() && time.Since(time.Unix(0, last.Load())) < datagramIdle {
				continue // the other direction moved meanwhile
			}
			return
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
		last.Store(time.Now().UnixNano())
		count(n)
	}
}
