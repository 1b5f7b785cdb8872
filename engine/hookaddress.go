package engine

import (
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"

	"github.com/berth-dev/berth/publicip"
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
	return publicip.Is(a) || slices.ContainsFunc(allowed, func(p netip.Prefix) bool { return p.Contains(a) })
}
