package engine

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/berth-dev/berth/sandbox"
)

// hookRanges are the ranges that webhooks may be sent to beside the public
// internet. They may change while deliveries go on.
type hookRanges struct {
	allowed atomic.Pointer[[]netip.Prefix]
}

// SetWebhookRanges allows webhooks to be sent to these ranges too, and to no
// others that are not public.
func (e *Engine) SetWebhookRanges(allowed []netip.Prefix) {
	e.hooks.ranges.allowed.Store(&allowed)
}

// closedRanges are not of the public internet, beside those that netip knows:
// shared, reserved and benchmark addresses, and forms of IPv6 that hold an IPv4
// address which somebody on the way would take out.
var closedRanges = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("100::/64"), netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2002::/16"), netip.MustParsePrefix("fec0::/10"),
}

// public reports whether an address is one of the public internet.
func public(a netip.Addr) bool {
	return a.IsGlobalUnicast() && !a.IsPrivate() && !slices.ContainsFunc(closedRanges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// check refuses a connection to an address that takes no webhooks. It is asked
// with the address that is dialled, whatever name it was found by.
func (h *hookRanges) check(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	var allowed []netip.Prefix
	if p := h.allowed.Load(); p != nil {
		allowed = *p
	}
	if takesWebhooks(to.Addr(), allowed) {
		return nil
	}
	return &sandbox.Error{Op: "check address", Kind: sandbox.Forbidden, Err: errors.New("webhooks are sent to public addresses alone"),
		Hint: "the operator may allow others: webhooks.allow in the configuration"}
}

func takesWebhooks(a netip.Addr, allowed []netip.Prefix) bool {
	a = a.Unmap().WithZone("")
	return public(a) || slices.ContainsFunc(allowed, func(p netip.Prefix) bool { return p.Contains(a) })
}
