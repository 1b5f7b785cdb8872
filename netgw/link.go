package netgw

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/berth-dev/berth/sandbox"
)

const (
	nic = 1

	// maxInFlight bounds the connection attempts of a sandbox that are being
	// judged and dialled at once; more are dropped, and come again.
	maxInFlight = 256

	// bufferSize is the window of a connection to the sandbox, in each direction, and
	// streamWindow the largest of one that the sandbox has opened: what is there at
	// once lets both sides work, and not wait for each other.
	bufferSize   = 1 << 20
	streamWindow = 2 << 20
)

// Link is the host's end of one sandbox's link.
type Link struct {
	stack   *stack.Stack
	tap     *tap
	out     *outgoing
	gateway *Gateway
	tenant  *tenant
	syns    syns
	errors  limiter // of answers "unreachable"

	ctx   context.Context // ends with Close
	end   context.CancelFunc
	flows sync.WaitGroup
	dns   asking

	dialling sync.RWMutex // held for reading while a dial is under way, for writing to close
}

// Open attaches a sandbox to the TAP of its namespace, whether that was just made
// or has been in use by a former process: connections of that process are gone,
// the sandbox notices nothing else. Without a policy that Apply has put into force
// nothing passes.
func (g *Gateway) Open(ns *Namespace, id sandbox.ID) (*Link, error) {
	silence()
	var fd int
	err := ns.within(func() (err error) {
		if fd, err = openTAP(); err != nil {
			return err
		}
		if err = settle(); err != nil {
			unix.Close(fd)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	tap, err := newTAP(fd)
	if err != nil {
		return nil, err
	}
	l := &Link{tap: tap, gateway: g, tenant: g.tenant(id), stack: stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, ipv6.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
	})}
	l.ctx, l.end = context.WithCancel(context.Background())
	l.syns.all = map[stack.TransportEndpointID]uint32{}
	l.errors = limiter{rate: 100, burst: 100, now: g.now}
	l.tap.admit = l.admit
	if err := l.configure(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// admit judges a packet of the sandbox.
func (l *Link) admit(proto tcpip.NetworkProtocolNumber, b []byte) bool {
	r, to := inspect(proto, b)
	if r == reject {
		l.refuseFrame(proto, b, to)
	}
	return r == permit
}

// silence turns off the stack's own log, which is the process's: a sandbox could
// fill it with malformed packets.
var silence = sync.OnceFunc(func() { log.SetTarget(&log.MultiEmitter{}) })

func (l *Link) configure() error {
	s := l.stack
	l.out = newOutgoing(l.tap)
	if e := s.CreateNICWithOptions(nic, l.tap, stack.NICOptions{QDisc: l.out}); e != nil {
		l.tap.Close() // the stack did not take it over
		return fmt.Errorf("attach stack: %v", e)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}, {Destination: header.IPv6EmptySubnet, NIC: nic}})
	for _, side := range []struct {
		proto      tcpip.NetworkProtocolNumber
		own, guest netip.Addr
		bits       int
	}{{ipv4.ProtocolNumber, GatewayAddr, GuestAddr, prefixBits}, {ipv6.ProtocolNumber, GatewayAddr6, GuestAddr6, prefixBits6}} {
		own := tcpip.ProtocolAddress{Protocol: side.proto, AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFromSlice(side.own.AsSlice()), PrefixLen: side.bits}}
		if e := s.AddProtocolAddress(nic, own, stack.AddressProperties{}); e != nil {
			return fmt.Errorf("set gateway address: %v", e)
		}
		if e := s.AddStaticNeighbor(nic, side.proto, tcpip.AddrFromSlice(side.guest.AsSlice()), tcpip.LinkAddress(guestMAC)); e != nil {
			return fmt.Errorf("set neighbour: %v", e)
		}
	}
	// Every destination is taken as ours, so that each attempt is seen here.
	if e := s.SetPromiscuousMode(nic, true); e != nil {
		return fmt.Errorf("set promiscuous: %v", e)
	}
	if e := s.SetSpoofing(nic, true); e != nil {
		return fmt.Errorf("set spoofing: %v", e)
	}
	l.tune()
	forward := tcp.NewForwarder(s, 0, maxInFlight, func(r *tcp.ForwarderRequest) {
		if !l.enter() {
			r.Complete(false)
			return
		}
		defer l.flows.Done()
		l.connect(r)
	})
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, func(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
		l.syns.note(id, pkt)
		return forward.HandlePacket(id, pkt)
	})
	s.SetTransportProtocolHandler(udp.ProtocolNumber, udp.NewForwarder(s, l.datagram).HandlePacket)
	return l.openDNS()
}

func (l *Link) tune() {
	sack := tcpip.TCPSACKEnabled(true)
	l.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &sack)
	l.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &tcpip.TCPReceiveBufferSizeRangeOption{Min: 4096, Default: bufferSize, Max: 8 * bufferSize})
	l.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &tcpip.TCPSendBufferSizeRangeOption{Min: 4096, Default: bufferSize, Max: 8 * bufferSize})
	moderate := tcpip.TCPModerateReceiveBufferOption(true)
	l.stack.SetTransportProtocolOption(tcp.ProtocolNumber, &moderate)
}

// DialGuest opens a TCP connection to a port of the sandbox, from the
// gateway's address.
//
// A dial ends with the link: one that the closed stack knew nothing of would wait
// for an answer that nobody can give, and the end of the link for it.
func (l *Link) DialGuest(ctx context.Context, port uint16) (net.Conn, error) {
	l.dialling.RLock()
	defer l.dialling.RUnlock()
	if l.ctx.Err() != nil {
		return nil, fmt.Errorf("dial port %d: %w", port, net.ErrClosed)
	}
	asked := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.ctx, cancel)()
	c, err := gonet.DialContextTCP(ctx, l.stack, tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(GuestAddr.As4()), Port: port}, ipv4.ProtocolNumber)
	if err != nil {
		if asked.Err() != nil {
			return nil, asked.Err()
		}
		return nil, fmt.Errorf("dial port %d: %w", port, err)
	}
	return c, nil
}

// Close ends the link and its connections. The namespace is not touched. It may
// be called once.
func (l *Link) Close() error {
	l.end()
	l.dialling.Lock() // what dials has ended, and nothing dials any more
	l.dialling.Unlock()
	l.dns.close()
	// Not stack.Destroy: that waits for the reader with a lock that the reader
	// may need to deliver its last frame.
	l.stack.Close()
	l.tap.Close()
	l.tap.Wait()
	l.waitFlows()
	l.stack.Wait()
	l.out.Close()
	l.gateway.leave(l.tenant)
	return nil
}

// enter counts one more flow, which says l.flows.Done when it ends. It reports
// whether the link is open.
func (l *Link) enter() bool {
	l.dialling.RLock()
	defer l.dialling.RUnlock()
	if l.ctx.Err() != nil {
		return false
	}
	l.flows.Add(1)
	return true
}

// waitFlows ends what the stack did not know of yet when it was closed: the handshake
// of a connection that was just being made would wait two minutes for a sandbox that
// nobody hears any more.
func (l *Link) waitFlows() {
	done := make(chan struct{})
	go func() {
		l.flows.Wait()
		close(done)
	}()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		for _, e := range l.stack.RegisteredEndpoints() {
			e.Abort()
		}
		select {
		case <-done:
			return
		case <-again.C:
		}
	}
}
