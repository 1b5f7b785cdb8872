package netgw

import (
	"net/netip"
	"slices"

	"github.com/berth-dev/berth/sandbox"
)

// decision is what a policy says to a connection before its first byte.
type decision struct {
	allowed bool
	rule    string
	reason  string // of a refusal

	peek   bool // the client's first bytes are judged before they are passed on
	opaque bool // they need not name a host: what is known of the address suffices
	late   bool // the name alone says where to: nothing is dialled before it is known
}

// Reasons of refusals, as the audit has them.
const (
	noPolicy   = "no policy is in force"
	noneLeft   = "the profile is none"
	notListed  = "no allow rule names it"
	notUDP     = "UDP needs an allow rule that names it"
	denyRule   = "a deny rule names it"
	otherDNS   = "names are asked of the gateway alone"
	hostHidden = "only a domain rule could allow it, and the connection names no host"
)

const profileOpen = "profile open"

func refuse(rule, reason string) decision { return decision{rule: rule, reason: reason} }

// connection judges a connection by its address, with the names that the sandbox
// knows the address by. Whether the address is closed to all is not its matter.
func (r *rules) connection(udp bool, to netip.AddrPort, names []string) decision {
	port := to.Port()
	if port == 53 || port == 853 {
		return refuse("", otherDNS)
	}
	byName := false // what is denied depends on the name
	for i := range r.deny {
		d := &r.deny[i]
		if !d.at(udp, port) {
			continue
		}
		switch {
		case d.inspects:
			byName = true
		case d.anywhere || d.contains(to.Addr()):
			return refuse(d.name, denyRule)
		case !d.domains.empty():
			byName = true
			if len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return !d.domains.match(n) }) {
				return refuse(d.name, denyRule)
			}
		}
	}
	if udp {
		return r.datagrams(to, names)
	}
	byName = byName || !r.inject.empty() || r.inspectsAt(port)
	if rule, ok := r.allowsAddr(false, to); ok {
		return decision{allowed: true, rule: rule, peek: byName, opaque: true}
	}
	switch r.policy.Profile {
	case sandbox.ProfileOpen:
		return decision{allowed: true, rule: profileOpen, peek: byName, opaque: true}
	case sandbox.ProfileNone:
		return refuse("", noneLeft)
	}
	return r.byDomain(to, names)
}

// byDomain judges what only a rule with domains can allow.
func (r *rules) byDomain(to netip.AddrPort, names []string) decision {
	found := refuse("", notListed)
	for i := range r.allow {
		a := &r.allow[i]
		if a.domains.empty() || !a.at(false, to.Port()) {
			continue
		}
		if slices.ContainsFunc(names, a.domains.match) {
			return decision{allowed: true, rule: a.name, peek: true, opaque: !a.inspects}
		}
		// A name may yet be shown, where protocols that show one are spoken.
		if p := to.Port(); p == 80 || p == 443 || a.names(p) {
			found = decision{allowed: true, peek: true, late: true}
		}
	}
	return found
}

// datagrams judges UDP: every profile needs a rule for it.
func (r *rules) datagrams(to netip.AddrPort, names []string) decision {
	if rule, ok := r.allowsAddr(true, to); ok {
		return decision{allowed: true, rule: rule}
	}
	for i := range r.allow {
		if a := &r.allow[i]; a.at(true, to.Port()) && slices.ContainsFunc(names, a.domains.match) {
			return decision{allowed: true, rule: a.name}
		}
	}
	return refuse("", notUDP)
}

func (r *rules) allowsAddr(udp bool, to netip.AddrPort) (string, bool) {
	for i := range r.allow {
		if a := &r.allow[i]; a.at(udp, to.Port()) && a.contains(to.Addr()) {
			return a.name, true
		}
	}
	return "", false
}

func (r *rules) inspectsAt(port uint16) bool {
	return slices.ContainsFunc(r.allow, func(a rule) bool { return a.inspects && a.at(false, port) })
}

// host judges a connection whose client has shown the name of its host. look:
// its requests are to be looked at.
func (r *rules) host(name string, to netip.AddrPort) (d decision, look bool) {
	look = r.inject.match(name)
	for i := range r.deny {
		if x := &r.deny[i]; x.at(false, to.Port()) && x.domains.match(name) {
			if !x.inspects {
				return refuse(x.name, denyRule), false
			}
			look = true
		}
	}
	rule, ok := "", false
	for i := range r.allow {
		if a := &r.allow[i]; a.at(false, to.Port()) && a.domains.match(name) {
			look = look || a.inspects
			if !ok {
				rule, ok = a.name, true
			}
		}
	}
	if cidr, is := r.allowsAddr(false, to); is && !ok {
		rule, ok = cidr, true
	}
	if !ok && r.policy.Profile == sandbox.ProfileOpen {
		rule, ok = profileOpen, true
	}
	if !ok {
		return refuse("", notListed), false
	}
	return decision{allowed: true, rule: rule}, look
}

// byNameAlone reports whether nothing but the name of its host allows a
// connection.
func (r *rules) byNameAlone(to netip.AddrPort) bool {
	_, byAddr := r.allowsAddr(false, to)
	return !byAddr && r.policy.Profile != sandbox.ProfileOpen
}

// request judges one request to a host.
func (r *rules) request(method, host, path string, to netip.AddrPort) Judgement {
	for i := range r.deny {
		if d := &r.deny[i]; d.at(false, to.Port()) && d.domains.match(host) && d.mayTake(method, path) {
			return Judgement{Rule: d.name, Reason: denyRule}
		}
	}
	named := false
	for i := range r.allow {
		if a := &r.allow[i]; a.at(false, to.Port()) && a.domains.match(host) {
			named = named || a.inspects
			if a.takes(method, path) {
				return Judgement{Allowed: true, Rule: a.name}
			}
		}
	}
	if rule, ok := r.allowsAddr(false, to); ok && !named {
		return Judgement{Allowed: true, Rule: rule}
	}
	switch {
	case r.policy.Profile == sandbox.ProfileOpen && !named:
		return Judgement{Allowed: true, Rule: profileOpen}
	case named:
		return Judgement{Reason: "no allow rule for its host takes this method and path"}
	}
	return Judgement{Reason: notListed}
}

// question judges a question for a name.
func (r *rules) question(name string) decision {
	for i := range r.deny {
		if d := &r.deny[i]; !d.inspects && len(d.ports) == 0 && (d.domains.match(name) || d.anywhere && d.tcp && d.udp) {
			return refuse(d.name, denyRule)
		}
	}
	switch r.policy.Profile {
	case sandbox.ProfileOpen:
		return decision{allowed: true, rule: profileOpen}
	case sandbox.ProfileNone:
		return refuse("", noneLeft)
	}
	for i := range r.allow {
		if a := &r.allow[i]; a.domains.match(name) {
			return decision{allowed: true, rule: a.name}
		}
	}
	return refuse("", notListed)
}
