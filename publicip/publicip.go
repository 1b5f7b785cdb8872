// Package publicip tells the addresses of the public internet from all others.
package publicip

import "net/netip"

// special are the addresses within the internet's ranges that are no public ones:
// all that the registries of special-purpose addresses do not call globally
// reachable, and some that they do.
var special = []struct {
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
// as unique-local and mapped addresses or those of translators, is not public.
var globalV6 = netip.MustParsePrefix("2000::/3")

const elsewhere = "not on the internet"

// Not says why an address is not public, or "". An IPv4 address in a form of IPv6,
// and one with a zone, is none.
func Not(a netip.Addr) string {
	if a.Is4In6() || a.Zone() != "" {
		return "an IPv4 address in another form"
	}
	for _, s := range special {
		if s.prefix.Contains(a) {
			return s.why
		}
	}
	if !a.IsValid() || a.Is6() && !globalV6.Contains(a) {
		return elsewhere
	}
	return ""
}

// NotAny says why no address of a range is public, or "" if some may be.
func NotAny(n netip.Prefix) string {
	if n.IsSingleIP() {
		return Not(n.Addr())
	}
	for _, s := range special {
		if s.prefix.Bits() <= n.Bits() && s.prefix.Contains(n.Addr()) {
			return s.why
		}
	}
	if n.Addr().Is6() && !n.Overlaps(globalV6) {
		return elsewhere
	}
	return ""
}

// Is reports whether an address is public.
func Is(a netip.Addr) bool { return Not(a) == "" }
