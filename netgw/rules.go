package netgw

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// rules is a policy made ready to judge.
type rules struct {
	policy      sandbox.Policy
	allow, deny []rule
	inject      injects  // hosts with an inject rule
	divert      Diverter // that decides before the rules do; nil: none
}

// rule is one rule made ready. It is about connections, unless it inspects.
type rule struct {
	name     string
	anywhere bool
	domains  domains
	cidrs    []netip.Prefix
	ports    []portRange // none: all
	tcp, udp bool
	inspects bool
	match    sandbox.Match
}

type portRange struct{ from, to uint16 }

// domains is a set of a rule's domains.
type domains struct {
	exact   map[string]struct{}
	beneath map[string]struct{} // of "*.example.com": "example.com"
}

func (d *domains) add(pattern string) {
	if d.exact == nil {
		d.exact, d.beneath = map[string]struct{}{}, map[string]struct{}{}
	}
	if parent, ok := strings.CutPrefix(pattern, "*."); ok {
		d.beneath[parent] = struct{}{}
		return
	}
	d.exact[pattern] = struct{}{}
}

func (d *domains) empty() bool { return len(d.exact)+len(d.beneath) == 0 }

// match reports whether a name in lower case is in the set.
func (d *domains) match(name string) bool {
	if _, ok := d.exact[name]; ok {
		return true
	}
	if len(d.beneath) == 0 {
		return false
	}
	for {
		_, parent, ok := strings.Cut(name, ".")
		if !ok {
			return false
		}
		if _, ok := d.beneath[parent]; ok {
			return true
		}
		name = parent
	}
}

// injects are the hosts that inject rules are about.
type injects []struct{ host, except domains }

func (in *injects) add(r *sandbox.Inject) {
	one := struct{ host, except domains }{}
	one.host.add(r.Host)
	for _, d := range r.Except {
		one.except.add(d)
	}
	*in = append(*in, one)
}

func (in injects) empty() bool { return len(in) == 0 }

// match reports whether any rule is about a name in lower case.
func (in injects) match(name string) bool {
	for i := range in {
		if in[i].host.match(name) && !in[i].except.match(name) {
			return true
		}
	}
	return false
}

// compile makes a sandbox's policy ready, or says why it cannot be enforced.
func (g *Gateway) compile(s *sandbox.Sandbox) (*rules, error) {
	p := sandbox.DefaultPolicy()
	if s.Policy != nil {
		p = *s.Policy
	}
	if err := p.Check(); err != nil {
		return nil, err
	}
	r := &rules{policy: p}
	if p.Divert != "" {
		if r.divert = g.diverters[p.Divert]; r.divert == nil {
			return nil, &sandbox.Error{Op: "check policy", Kind: sandbox.Unsupported, Err: fmt.Errorf("this server has no diverter %q", p.Divert),
				Hint: "leave divert out: the door that needs it sets it"}
		}
	}
	for i := range p.Allow {
		c := compileRule(&p.Allow[i], "allow", i)
		if err := g.checkOpen(&c); err != nil {
			return nil, err
		}
		r.allow = append(r.allow, c)
	}
	for i := range p.Deny {
		r.deny = append(r.deny, compileRule(&p.Deny[i], "deny", i))
	}
	for _, in := range p.Inject {
		r.inject.add(&in)
	}
	if r.inspects() && g.intercept == nil {
		return nil, &sandbox.Error{Op: "check policy", Kind: sandbox.Unsupported, Err: fmt.Errorf("it needs requests to be looked at, which this server does not do"),
			Hint: "leave out inspect, methods, paths and inject"}
	}
	if g.intercept != nil {
		if err := g.intercept.Check(s); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *rules) inspects() bool {
	looks := func(x rule) bool { return x.inspects }
	return !r.inject.empty() || slices.ContainsFunc(r.allow, looks) || slices.ContainsFunc(r.deny, looks)
}

func compileRule(from *sandbox.Rule, list string, i int) rule {
	r := rule{
		name:     from.RuleName(list, i),
		anywhere: len(from.Domains)+len(from.CIDRs) == 0,
		tcp:      from.Protocol != sandbox.ProtocolUDP,
		udp:      from.Protocol == sandbox.ProtocolUDP || from.Protocol == "" && list == "deny" && !from.Inspects(),
		inspects: from.Inspects(), match: sandbox.Match{Methods: from.Methods, Paths: from.Paths},
	}
	for _, d := range from.Domains {
		r.domains.add(d)
	}
	for _, c := range from.CIDRs {
		prefix, _ := sandbox.ParseCIDR(c) // checked
		r.cidrs = append(r.cidrs, prefix)
	}
	for _, p := range from.Ports {
		first, last, _ := sandbox.ParsePorts(p) // checked
		r.ports = append(r.ports, portRange{first, last})
	}
	return r
}

// checkOpen refuses a rule that promises what the operator has closed.
func (g *Gateway) checkOpen(r *rule) error {
	for _, c := range r.cidrs {
		if why := g.closedWhole(c); why != "" {
			return &sandbox.Error{Op: "check policy", Kind: sandbox.Forbidden, Err: fmt.Errorf("%s allows %s, which is closed: %s", r.name, c, why),
				Hint: "only the server's operator can open it, with --egress-allow"}
		}
	}
	return nil
}

// at reports whether the rule is about a protocol and a port.
func (r *rule) at(udp bool, port uint16) bool {
	if udp && !r.udp || !udp && !r.tcp {
		return false
	}
	return len(r.ports) == 0 || r.names(port)
}

// names reports whether the rule names a port.
func (r *rule) names(port uint16) bool {
	return slices.ContainsFunc(r.ports, func(p portRange) bool { return p.from <= port && port <= p.to })
}

func (r *rule) contains(a netip.Addr) bool {
	return slices.ContainsFunc(r.cidrs, func(c netip.Prefix) bool { return c.Contains(a) })
}

// takes reports whether the rule's methods and paths match a request.
func (r *rule) takes(method, path string) bool { return r.match.Matches(method, path) }

// mayTake is takes for a rule that denies: a path that different readers take for
// different ones counts as all of them.
func (r *rule) mayTake(method, path string) bool {
	if len(r.match.Methods) > 0 && !slices.Contains(r.match.Methods, method) {
		return false
	}
	clear := sandbox.Match{Paths: []string{"*"}}
	return r.takes(method, path) || !clear.Matches(method, path)
}
