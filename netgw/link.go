package netgw

import (
	"context"
	"fmt"
	"net"
	"sync"

	"gvisor.dev/gvisor/pkg/log"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
)

const (
	nic = 1

	// maxInFlight bounds the connection attempts of a sandbox that are being
	// judged at once; more are dropped.
	maxInFlight = 64

	// bufferSize is the window of one connection, in each direction.
	bufferSize = 1 << 20
)

// Link is the host's end of one sandbox's link.
type Link struct {
	stack *stack.Stack
	tap   *tap
}

// Open attaches to the TAP of a namespace, whether it was just made or has been
// in use by a former process: connections of that process are gone, the sandbox
// notices nothing else.
func Open(ns *Namespace) (*Link, error) {
	silence()
	var fd int
	err := ns.within(func() (err error) {
		fd, err = openTAP()
		return err
	})
	if err != nil {
		return nil, err
	}
	l := &Link{tap: newTAP(fd), stack: stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol, arp.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4},
	})}
	if err := l.configure(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// silence turns off the stack's own log, which is the process's: a sandbox could
// fill it with malformed packets.
var silence = sync.OnceFunc(func() { log.SetTarget(&log.MultiEmitter{}) })

func (l *Link) configure() error {
	s := l.stack
	if e := s.CreateNIC(nic, l.tap); e != nil {
		l.tap.Close() // the stack did not take it over
		return fmt.Errorf("attach stack: %v", e)
	}
	own := tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: tcpip.AddressWithPrefix{Address: tcpip.AddrFrom4(GatewayAddr.As4()), PrefixLen: prefixBits},
	}
	if e := s.AddProtocolAddress(nic, own, stack.AddressProperties{}); e != nil {
		return fmt.Errorf("set gateway address: %v", e)
	}
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: nic}})
	if e := s.AddStaticNeighbor(nic, ipv4.ProtocolNumber, tcpip.AddrFrom4(GuestAddr.As4()), tcpip.LinkAddress(guestMAC)); e != nil {
		return fmt.Errorf("set neighbour: %v", e)
	}
	// Every destination is taken as ours, so that each attempt is seen here.
	if e := s.SetPromiscuousMode(nic, true); e != nil {
		return fmt.Errorf("set promiscuous: %v", e)
	}
	if e := s.SetSpoofing(nic, true); e != nil {
		return fmt.Errorf("set spoofing: %v", e)
	}
	l.tune()
	forward := tcp.NewForwarder(s, 0, maxInFlight, func(r *tcp.ForwarderRequest) { r.Complete(true) })
	s.SetTransportProtocolHandler(tcp.ProtocolNumber, forward.HandlePacket)
	return nil
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
func (l *Link) DialGuest(ctx context.Context, port uint16) (net.Conn, error) {
	c, err := gonet.DialContextTCP(ctx, l.stack, tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFrom4(GuestAddr.As4()), Port: port}, ipv4.ProtocolNumber)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("dial port %d: %w", port, err)
	}
	return c, nil
}

// Close ends the link and its connections. The namespace is not touched. It may
// be called once.
func (l *Link) Close() error {
	// Not stack.Destroy: that waits for the reader with a lock that the reader
	// may need to deliver its last frame.
	l.stack.Close()
	l.tap.Close()
	l.tap.Wait()
	l.stack.Wait()
	return nil
}
