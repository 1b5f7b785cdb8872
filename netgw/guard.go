package netgw

import (
	"encoding/binary"
	"net/netip"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/berth-dev/berth/sandbox"
)

// ruling is what becomes of a frame of the sandbox.
type ruling int

const (
	drop   ruling = iota // it is nobody's
	permit               // the stack takes it
	reject               // its sender is told that it may not
)

// inspect judges a packet before the stack sees it: only the sandbox's own
// addresses may send, only TCP, UDP and what those need of ICMP. The stack
// answers pings for every address that it takes as its own, which is every one:
// so only the gateway's may be pinged.
func inspect(proto tcpip.NetworkProtocolNumber, b []byte) (r ruling, to netip.Addr) {
	switch proto {
	case header.ARPProtocolNumber:
		return permit, to
	case header.IPv4ProtocolNumber:
		return inspectV4(b)
	case header.IPv6ProtocolNumber:
		return inspectV6(b)
	}
	return drop, to
}

func inspectV4(b []byte) (ruling, netip.Addr) {
	if len(b) < header.IPv4MinimumSize || b[0] != 0x45 { // options are for those who would steer packets
		return drop, netip.Addr{}
	}
	from, to := netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
	if from != GuestAddr {
		return drop, to
	}
	fragment := binary.BigEndian.Uint16(b[6:8])&0x3fff != 0
	switch h := header.IPv4(b); h.Protocol() {
	case uint8(header.TCPProtocolNumber):
		if !fragment {
			return permit, to
		}
	case uint8(header.UDPProtocolNumber):
		return permit, to
	case uint8(header.ICMPv4ProtocolNumber):
		if fragment || len(b) < header.IPv4MinimumSize+1 {
			return drop, to
		}
		switch header.ICMPv4Type(b[header.IPv4MinimumSize]) {
		case header.ICMPv4DstUnreachable, header.ICMPv4TimeExceeded, header.ICMPv4ParamProblem:
			return permit, to
		case header.ICMPv4Echo:
			if to == GatewayAddr {
				return permit, to
			}
			return reject, to
		}
		return drop, to
	}
	return reject, to
}

func inspectV6(b []byte) (ruling, netip.Addr) {
	if len(b) < header.IPv6MinimumSize || b[0]>>4 != 6 {
		return drop, netip.Addr{}
	}
	from, to := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	next := b[6]
	if from != GuestAddr6 && !(next == uint8(header.ICMPv6ProtocolNumber) && (from.IsLinkLocalUnicast() || from.IsUnspecified())) {
		return drop, to
	}
	switch next {
	case uint8(header.TCPProtocolNumber), uint8(header.UDPProtocolNumber):
		return permit, to
	case uint8(header.ICMPv6ProtocolNumber):
		if len(b) < header.IPv6MinimumSize+1 {
			return drop, to
		}
		switch header.ICMPv6Type(b[header.IPv6MinimumSize]) {
		case header.ICMPv6DstUnreachable, header.ICMPv6PacketTooBig, header.ICMPv6TimeExceeded, header.ICMPv6ParamProblem:
			return permit, to
		case header.ICMPv6NeighborSolicit, header.ICMPv6NeighborAdvert:
			return permit, to
		case header.ICMPv6EchoRequest:
			if to == GatewayAddr6 {
				return permit, to
			}
			return reject, to
		}
		return drop, to
	case uint8(header.IPv6HopByHopOptionsExtHdrIdentifier), uint8(header.IPv6FragmentExtHdrIdentifier):
		return drop, to // of group membership, and of datagrams that are too long
	}
	if to.IsMulticast() {
		return drop, to
	}
	return reject, to
}

// refuseFrame tells the sandbox that a packet may not pass, and the audit.
func (l *Link) refuseFrame(proto tcpip.NetworkProtocolNumber, b []byte, to netip.Addr) {
	l.gateway.count.denied.Add(1)
	name, code := "", uint8(0)
	if proto == header.IPv4ProtocolNumber {
		name, code = protocolName(b[9]), uint8(header.ICMPv4AdminProhibited)
	} else {
		name, code = protocolName(b[6]), uint8(header.ICMPv6Prohibited)
	}
	l.gateway.noteRefusal(l.tenant, sandbox.AuditEntry{
		Time: l.gateway.now(), Sandbox: l.tenant.id, Account: l.tenant.owner(), Kind: sandbox.AuditConnection, Verdict: sandbox.VerdictDenied,
		Protocol: name, Address: to.String(), Reason: "only TCP, and UDP where a rule allows it, may leave",
	})
	if allowed, _ := l.errors.pass(); allowed {
		l.sendError(proto, b, code)
	}
}

func protocolName(n uint8) string {
	switch n {
	case uint8(header.ICMPv4ProtocolNumber), uint8(header.ICMPv6ProtocolNumber):
		return "icmp"
	}
	return "ip"
}

// sendError answers a packet of the sandbox with "destination unreachable".
func (l *Link) sendError(proto tcpip.NetworkProtocolNumber, b []byte, code uint8) {
	if proto == header.IPv4ProtocolNumber {
		l.sendErrorV4(b, code)
		return
	}
	l.sendErrorV6(b, code)
}

func (l *Link) sendErrorV4(b []byte, code uint8) {
	quoted := b[:min(len(b), header.IPv4MinimumSize+8)]
	frame := newFrame(header.IPv4ProtocolNumber, header.IPv4MinimumSize+header.ICMPv4MinimumSize+len(quoted))
	ip := header.IPv4(frame[vnetHeader+header.EthernetMinimumSize:])
	ip.Encode(&header.IPv4Fields{
		TotalLength: uint16(len(ip)), TTL: 64, Protocol: uint8(header.ICMPv4ProtocolNumber),
		SrcAddr: tcpip.AddrFrom4([4]byte(b[16:20])), DstAddr: tcpip.AddrFrom4([4]byte(b[12:16])),
	})
	ip.SetChecksum(^ip.CalculateChecksum())
	icmp := header.ICMPv4(ip.Payload())
	icmp.SetType(header.ICMPv4DstUnreachable)
	icmp.SetCode(header.ICMPv4Code(code))
	copy(icmp[header.ICMPv4MinimumSize:], quoted)
	icmp.SetChecksum(0)
	icmp.SetChecksum(^checksum.Checksum(icmp, 0))
	l.write(frame)
}

func (l *Link) sendErrorV6(b []byte, code uint8) {
	quoted := b[:min(len(b), header.IPv6MinimumSize+8)]
	frame := newFrame(header.IPv6ProtocolNumber, header.IPv6MinimumSize+header.ICMPv6MinimumSize+len(quoted))
	ip := header.IPv6(frame[vnetHeader+header.EthernetMinimumSize:])
	from, to := tcpip.AddrFrom16([16]byte(b[24:40])), tcpip.AddrFrom16([16]byte(b[8:24]))
	ip.Encode(&header.IPv6Fields{
		PayloadLength: uint16(len(ip) - header.IPv6MinimumSize), TransportProtocol: header.ICMPv6ProtocolNumber, HopLimit: 64,
		SrcAddr: from, DstAddr: to,
	})
	icmp := header.ICMPv6(ip[header.IPv6MinimumSize:])
	icmp.SetType(header.ICMPv6DstUnreachable)
	icmp.SetCode(header.ICMPv6Code(code))
	copy(icmp[header.ICMPv6MinimumSize:], quoted)
	icmp.SetChecksum(header.ICMPv6Checksum(header.ICMPv6ChecksumParams{Header: icmp, Src: from, Dst: to}))
	l.write(frame)
}

// newFrame makes a frame to the sandbox with room for a packet.
func newFrame(proto tcpip.NetworkProtocolNumber, size int) []byte {
	frame := make([]byte, vnetHeader+header.EthernetMinimumSize+size)
	header.Ethernet(frame[vnetHeader:]).Encode(&header.EthernetFields{
		SrcAddr: tcpip.LinkAddress(gatewayMAC), DstAddr: tcpip.LinkAddress(guestMAC), Type: proto,
	})
	return frame
}

// write sends a frame; one that finds no room is lost, as on a wire.
func (l *Link) write(frame []byte) { l.tap.send([][]byte{frame}) }
