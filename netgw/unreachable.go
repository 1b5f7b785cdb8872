package netgw

import (
	"encoding/binary"
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// syns remembers the sequence numbers of attempts to connect that are under way:
// whoever is told that a host is out of reach wants to see his own.
type syns struct {
	mu  sync.Mutex
	all map[stack.TransportEndpointID]uint32
}

// note remembers a packet that asks for a connection.
func (s *syns) note(id stack.TransportEndpointID, pkt *stack.PacketBuffer) {
	h := header.TCP(pkt.TransportHeader().Slice())
	if len(h) < header.TCPMinimumSize || h.Flags()&(header.TCPFlagSyn|header.TCPFlagAck) != header.TCPFlagSyn {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) >= 4*maxInFlight { // of attempts that were dropped
		clear(s.all)
	}
	s.all[id] = h.SequenceNumber()
}

func (s *syns) take(id stack.TransportEndpointID) (seq uint32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq, ok = s.all[id]
	delete(s.all, id)
	return seq, ok
}

// unreachable tells the sandbox that the host that it dialled is out of reach.
func (l *Link) unreachable(id stack.TransportEndpointID, seq uint32) {
	if id.LocalAddress.Len() == 4 {
		b := make([]byte, header.IPv4MinimumSize+8)
		header.IPv4(b).Encode(&header.IPv4Fields{
			TotalLength: header.IPv4MinimumSize + header.TCPMinimumSize, TTL: 64, Protocol: uint8(header.TCPProtocolNumber),
			SrcAddr: id.RemoteAddress, DstAddr: id.LocalAddress,
		})
		quote(b[header.IPv4MinimumSize:], id, seq)
		l.sendErrorV4(b, uint8(header.ICMPv4HostUnreachable))
		return
	}
	b := make([]byte, header.IPv6MinimumSize+8)
	header.IPv6(b).Encode(&header.IPv6Fields{
		PayloadLength: header.TCPMinimumSize, TransportProtocol: header.TCPProtocolNumber, HopLimit: 64,
		SrcAddr: id.RemoteAddress, DstAddr: id.LocalAddress,
	})
	quote(b[header.IPv6MinimumSize:], id, seq)
	l.sendErrorV6(b, uint8(header.ICMPv6AddressUnreachable))
}

// quote writes the part of a TCP header that an error repeats.
func quote(b []byte, id stack.TransportEndpointID, seq uint32) {
	binary.BigEndian.PutUint16(b, id.RemotePort)
	binary.BigEndian.PutUint16(b[2:], id.LocalPort)
	binary.BigEndian.PutUint32(b[4:], seq)
}
