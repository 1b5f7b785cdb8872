// Package netgw is the gateway: the only way from a sandbox to anything else.
//
// Every sandbox has a private link: a network namespace that holds nothing but
// a TAP, whose other end is a TCP/IP stack inside this process. No kernel
// forwards, routes or translates for it. The addresses are the same in every
// sandbox, so that a machine can be copied without being told.
//
// Each connection that a sandbox opens, each datagram and each question for a name
// arrives here in Go, meets the sandbox's policy, and is then dialled, answered or
// refused. A Gateway holds the policies of all sandboxes and what they share; a
// Link carries one sandbox's traffic, and the host's own connections to its guest.
package netgw

import (
	"net"
	"net/netip"
)

// What every sandbox's link looks like.
var (
	GuestAddr   = netip.MustParseAddr("10.200.0.2") // the sandbox's own
	GatewayAddr = netip.MustParseAddr("10.200.0.1") // the host's, in no other place

	GuestAddr6   = netip.MustParseAddr("fd62:6572:7468::2")
	GatewayAddr6 = netip.MustParseAddr("fd62:6572:7468::1")
)

const (
	prefixBits  = 24
	prefixBits6 = 64
	mtu         = 1500
	device      = "eth0"
)

// One MAC for each end, everywhere: a copied machine keeps its neighbours.
var (
	guestMAC   = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x02}
	gatewayMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01}
)
