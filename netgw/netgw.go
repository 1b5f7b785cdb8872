// Package netgw is the gateway: the only way from a sandbox to anything else.
//
// Every sandbox has a private link: a network namespace that holds nothing but
// a TAP, whose other end is a TCP/IP stack inside this process. No kernel
// forwards, routes or translates for it. The addresses are the same in every
// sandbox, so that a machine can be copied without being told.
//
// A Link so far carries the host's connections to the guest alone: whatever the
// sandbox dials is refused at once.
package netgw

import (
	"net"
	"net/netip"
)

// What every sandbox's link looks like.
var (
	GuestAddr   = netip.MustParseAddr("10.200.0.2") // the sandbox's own
	GatewayAddr = netip.MustParseAddr("10.200.0.1") // the host's, in no other place
)

const (
	prefixBits = 24
	mtu        = 1500
	device     = "eth0"
)

// One MAC for each end, everywhere: a copied machine keeps its neighbours.
var (
	guestMAC   = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x02}
	gatewayMAC = net.HardwareAddr{0x02, 0, 0, 0, 0, 0x01}
)
