package e2b

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// everything is how clients write all addresses.
const everything = "0.0.0.0/0"

// policy is the egress options in the engine's words. Here allow beats deny: what
// is denied and allowed may be reached. The engine's deny rules win, so what is
// allowed becomes an allow list only when everything else is denied; otherwise
// the denied ranges are cut around what is allowed.
func (n *network) policy() (*sandbox.Policy, error) {
	p, err := n.reaches()
	if err != nil {
		return nil, err
	}
	if p.Inject, err = n.inject(); err != nil {
		return nil, err
	}
	if p.Profile == sandbox.ProfileNone && len(p.Inject) > 0 {
		p.Profile = sandbox.ProfileAllow // of nothing: rules may wait for what they are about
	}
	return p, nil
}

// reaches is the policy without credentials.
func (n *network) reaches() (*sandbox.Policy, error) {
	if len(n.EgressProxy) > 0 && string(n.EgressProxy) != "null" {
		return nil, unsupported("egressProxy: this server sends nothing through proxies")
	}
	if len(n.AllowIn)+len(n.DenyIn) > 0 {
		return nil, unsupported("allowIn and denyIn: ports are opened to all, or by allowPublicTraffic false to those who have the token")
	}
	deny := slices.Clone(n.DenyOut)
	if n.AllowInternet != nil && !*n.AllowInternet {
		deny = append(deny, everything)
	}
	all := slices.Contains(deny, everything)
	allow, err := n.allowed(all)
	if err != nil {
		return nil, err
	}
	for _, text := range deny {
		if _, err := parseRange(text); err != nil {
			return nil, invalid(fmt.Sprintf("denyOut: %q is no address and no CIDR block", printable(text)))
		}
	}
	if all {
		if slices.ContainsFunc(allow.CIDRs, func(c string) bool { return c == everything }) {
			return &sandbox.Policy{Profile: sandbox.ProfileOpen}, nil
		}
		if len(allow.CIDRs)+len(allow.Domains) == 0 {
			return &sandbox.Policy{Profile: sandbox.ProfileNone}, nil
		}
		return &sandbox.Policy{Profile: sandbox.ProfileAllow, Allow: []sandbox.Rule{allow}}, nil
	}
	p := &sandbox.Policy{Profile: sandbox.ProfileOpen}
	denied, err := without(deny, allow.CIDRs)
	if err != nil {
		return nil, err
	}
	if len(denied) > 0 {
		p.Deny = []sandbox.Rule{{Name: "denyOut", CIDRs: denied}}
	}
	return p, nil
}

// allowed sorts what is allowed into names and addresses. Names mean nothing
// unless all else is denied.
func (n *network) allowed(all bool) (sandbox.Rule, error) {
	rule := sandbox.Rule{Name: "allowOut"}
	for _, text := range n.AllowOut {
		if _, err := parseRange(text); err == nil {
			rule.CIDRs = append(rule.CIDRs, text)
			continue
		}
		if !all {
			return rule, invalid("When specifying allowed domains in allow out, you must include '0.0.0.0/0' in deny out to block all other traffic.")
		}
		rule.Domains = append(rule.Domains, strings.ToLower(text))
	}
	return rule, nil
}

func parseRange(text string) (netip.Prefix, error) {
	if a, err := netip.ParseAddr(text); err == nil {
		return netip.PrefixFrom(a, a.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}

// maxCut bounds the blocks that remain when ranges are cut.
const maxCut = 1024

// without gives the blocks of deny that no block of allow covers.
func without(deny, allow []string) (out []string, err error) {
	var holes []netip.Prefix
	for _, text := range allow {
		p, err := parseRange(text)
		if err != nil {
			return nil, err
		}
		holes = append(holes, p)
	}
	for _, text := range deny {
		p, err := parseRange(text)
		if err != nil {
			return nil, err
		}
		for _, rest := range cut(p, holes) {
			out = append(out, rest.String())
		}
		if len(out) > maxCut {
			return nil, invalid("allowOut and denyOut overlap in too many places")
		}
	}
	return out, nil
}

// cut splits p around the holes in it.
func cut(p netip.Prefix, holes []netip.Prefix) []netip.Prefix {
	for _, h := range holes {
		if h.Addr().Is4() != p.Addr().Is4() || !h.Overlaps(p) {
			continue
		}
		if h.Bits() <= p.Bits() {
			return nil // covered whole
		}
		low, high := halves(p)
		return append(cut(low, holes), cut(high, holes)...)
	}
	return []netip.Prefix{p}
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits() + 1
	low = netip.PrefixFrom(p.Addr(), bits)
	b := p.Addr().AsSlice()
	b[p.Bits()/8] |= 0x80 >> (p.Bits() % 8)
	a, _ := netip.AddrFromSlice(b)
	return low, netip.PrefixFrom(a, bits)
}
