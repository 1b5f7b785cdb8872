package netgw

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// closedPrefixes are the addresses that no sandbox reaches unless the operator
// opens them: all that the registries of special-purpose addresses do not call
// globally reachable, and some that they do.
var closedPrefixes = []struct {
	prefix netip.Prefix
	why    string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT"},
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},
	{netip.MustParsePrefix("169.254.0.0/16"), "link-local and metadata"},
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4 relay"},
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarks"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved and broadcast"},
	// A public address at which a large cloud answers its machines.
	{netip.MustParsePrefix("168.63.129.16/32"), "metadata"},

	{netip.MustParsePrefix("2001::/23"), "protocol assignments, Teredo among them"},
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("2002::/16"), "6to4"},
	{netip.MustParsePrefix("2620:4f:8000::/48"), "reserved"},
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
}

// globalV6 is all of IPv6 that is routed on the internet. What lies beyond, such
// as unique-local and mapped addresses or those of translators, is closed.
var globalV6 = netip.MustParsePrefix("2000::/3")

// closed says why an address is out of every sandbox's reach, or "".
func (g *Gateway) closed(a netip.Addr) string {
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	if slices.ContainsFunc(g.deny, in) {
		return "the operator has closed it"
	}
	if slices.ContainsFunc(g.allow, in) {
		return ""
	}
	if a.Is4In6() || a.Zone() != "" {
		return "an IPv4 address in another form"
	}
	for i := range closedPrefixes {
		if closedPrefixes[i].prefix.Contains(a) {
			return closedPrefixes[i].why
		}
	}
	if a.Is6() && !globalV6.Contains(a) {
		return "not on the internet"
	}
	if g.own.has(a) {
		return "the server's own"
	}
	return ""
}

// closedWhole says why no address of a network is in a sandbox's reach, or "".
func (g *Gateway) closedWhole(n netip.Prefix) string {
	if slices.ContainsFunc(g.allow, n.Overlaps) {
		return ""
	}
	if n.IsSingleIP() {
		return g.closed(n.Addr())
	}
	for i := range closedPrefixes {
		if p := closedPrefixes[i].prefix; p.Bits() <= n.Bits() && p.Contains(n.Addr()) {
			return closedPrefixes[i].why
		}
	}
	if n.Addr().Is6() && !n.Overlaps(globalV6) {
		return "not on the internet"
	}
	return ""
}

// ownAddresses knows the addresses of this host, at most a second late.
type ownAddresses struct {
	now func() time.Time

	mu   sync.Mutex
	read time.Time
	all  map[netip.Addr]bool
}

// has reports whether an address is the host's, or the broadcast address of one
// of its networks. If the host's cannot be learned, every address is.
func (o *ownAddresses) has(a netip.Addr) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.now(); o.all == nil || now.Sub(o.read) > time.Second || now.Before(o.read) {
		found, err := net.InterfaceAddrs()
		if err != nil {
			o.all = nil
			return true
		}
		o.read, o.all = now, map[netip.Addr]bool{}
		for _, f := range found {
			o.add(f)
		}
	}
	return o.all[a]
}

func (o *ownAddresses) add(f net.Addr) {
	n, ok := f.(*net.IPNet)
	if !ok {
		return
	}
	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return
	}
	a = a.Unmap()
	o.all[a] = true
	ones, bits := n.Mask.Size()
	if a.Is4() && bits == 32 && ones < 31 {
		last := a.As4()
		for i := ones; i < 32; i++ {
			last[i/8] |= 1 << (7 - i%8)
		}
		o.all[netip.AddrFrom4(last)] = true
	}
}
