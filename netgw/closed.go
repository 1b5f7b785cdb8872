package netgw

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/publicip"
)

// closed says why an address is out of every sandbox's reach, or "".
func (g *Gateway) closed(a netip.Addr) string {
	in := func(p netip.Prefix) bool { return p.Contains(a) }
	if slices.ContainsFunc(g.deny, in) {
		return "the operator has closed it"
	}
	if slices.ContainsFunc(g.allow, in) {
		return ""
	}
	if why := publicip.Not(a); why != "" {
		return why
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
	return publicip.NotAny(n)
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
