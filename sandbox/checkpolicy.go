package sandbox

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Check reports an error of kind Invalid for the first thing that is wrong, and
// for rules that can never matter: they would mislead their reader.
func (p *Policy) Check() error {
	const op = "check policy"
	if p == nil {
		return nil
	}
	if !slices.Contains(Profiles(), p.Profile) {
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("%.40q is no profile", p.Profile), Hint: fmt.Sprintf("the profiles are %v", Profiles())}
	}
	if p.Divert != "" {
		if err := CheckName(p.Divert); err != nil {
			return &Error{Op: op + ": divert", Err: err}
		}
	} else if p.DivertTLS {
		return &Error{Op: op, Kind: Invalid, Err: errors.New("divert_tls is set, and divert is not"), Hint: "leave both out: doors set them"}
	}
	if p.Profile == ProfileNone && len(p.Allow)+len(p.Inject) > 0 {
		return &Error{Op: op, Kind: Invalid, Err: errors.New("the profile none contradicts its allow and inject rules"), Hint: "take the profile allow-list, or no rules"}
	}
	for _, list := range []struct {
		name  string
		rules []Rule
	}{{"allow", p.Allow}, {"deny", p.Deny}} {
		if len(list.rules) > MaxPolicyRules {
			return Errorf(op, Invalid, "%d %s rules, at most %d are taken", len(list.rules), list.name, MaxPolicyRules)
		}
		for i := range list.rules {
			if err := list.rules[i].check(list.name); err != nil {
				return &Error{Op: fmt.Sprintf("check policy: %s[%d]", list.name, i), Kind: Invalid, Err: err, Hint: HintOf(err)}
			}
		}
	}
	if len(p.Inject) > MaxInjects {
		return Errorf(op, Invalid, "%d inject rules, at most %d are taken", len(p.Inject), MaxInjects)
	}
	for i := range p.Inject {
		if err := p.Inject[i].Check(); err != nil {
			return &Error{Op: fmt.Sprintf("check policy: inject[%d]", i), Kind: Invalid, Err: err}
		}
	}
	if err := p.checkValueBytes(); err != nil {
		return err
	}
	return p.checkAgainstEachOther()
}

// checkAgainstEachOther refuses an allow rule that a deny rule swallows whole,
// and a rule that is there twice.
func (p *Policy) checkAgainstEachOther() error {
	const op = "check policy"
	for i := range p.Allow {
		a := &p.Allow[i]
		for j := range p.Deny {
			if d := &p.Deny[j]; d.covers(a, true, false) {
				return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("%s can never apply: %s denies all of it", a.RuleName("allow", i), d.RuleName("deny", j)),
					Hint: "remove one of the two: deny wins"}
			}
		}
	}
	for _, list := range []struct {
		name  string
		rules []Rule
	}{{"allow", p.Allow}, {"deny", p.Deny}} {
		seen := map[string]int{}
		for i := range list.rules {
			key := list.rules[i].key()
			if first, twice := seen[key]; twice {
				return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("%s[%d] says the same as %s[%d]", list.name, i, list.name, first), Hint: "remove one of the two"}
			}
			seen[key] = i
		}
	}
	return nil
}

// Overlaps tells, for people, which rules add nothing because another one of the
// same list covers them.
func (p *Policy) Overlaps() []string {
	var told []string
	for _, list := range []struct {
		name  string
		rules []Rule
	}{{"allow", p.Allow}, {"deny", p.Deny}} {
		for i := range list.rules {
			for j := range list.rules {
				if i != j && list.rules[j].covers(&list.rules[i], list.name == "deny", list.name == "deny") {
					told = append(told, fmt.Sprintf("%s adds nothing to %s", list.rules[i].RuleName(list.name, i), list.rules[j].RuleName(list.name, j)))
					break
				}
			}
		}
	}
	return told
}

// key is equal for rules that say the same.
func (r *Rule) key() string {
	c := *r
	c.Name = ""
	sorted := func(l []string) []string { l = slices.Clone(l); slices.Sort(l); return l }
	return fmt.Sprintf("%q %q %q %q %v %q %q", sorted(c.Domains), sorted(c.CIDRs), sorted(c.Ports), c.Protocol, c.Inspect, sorted(c.Methods), sorted(c.Paths))
}

// covers reports whether everything that o matches, r matches too. It may miss
// some cases, and never claims one that is not. Either may be a deny rule, for
// which no protocol means all.
func (r *Rule) covers(o *Rule, rDenies, oDenies bool) bool {
	if r.Inspects() {
		return false
	}
	for _, p := range o.protocols(oDenies) {
		if !slices.Contains(r.protocols(rDenies), p) {
			return false
		}
	}
	return r.coversPorts(o) && r.coversPlaces(o)
}

func (r *Rule) protocols(denies bool) []Protocol {
	switch {
	case r.Protocol != "":
		return []Protocol{r.Protocol}
	case denies:
		return []Protocol{ProtocolTCP, ProtocolUDP}
	}
	return []Protocol{ProtocolTCP}
}

func coversDomain(pattern, d string) bool {
	if beneath, wild := strings.CutPrefix(d, "*."); wild {
		return pattern == d || strings.HasPrefix(pattern, "*.") && MatchDomain(pattern, beneath)
	}
	return MatchDomain(pattern, d)
}

func (r *Rule) coversPorts(o *Rule) bool {
	if len(r.Ports) == 0 {
		return true
	}
	return len(o.Ports) > 0 && !slices.ContainsFunc(o.Ports, func(op string) bool {
		oFrom, oTo, _ := ParsePorts(op)
		return !slices.ContainsFunc(r.Ports, func(rp string) bool {
			from, to, _ := ParsePorts(rp)
			return from <= oFrom && oTo <= to
		})
	})
}

func (r *Rule) coversPlaces(o *Rule) bool {
	if len(r.Domains)+len(r.CIDRs) == 0 {
		return true
	}
	if len(o.Domains)+len(o.CIDRs) == 0 {
		return false
	}
	for _, d := range o.Domains {
		if !slices.ContainsFunc(r.Domains, func(pattern string) bool { return coversDomain(pattern, d) }) {
			return false
		}
	}
	for _, c := range o.CIDRs {
		inner, _ := ParseCIDR(c)
		if !slices.ContainsFunc(r.CIDRs, func(s string) bool {
			outer, _ := ParseCIDR(s)
			return outer.Bits() <= inner.Bits() && outer.Contains(inner.Addr())
		}) {
			return false
		}
	}
	return true
}

func (r *Rule) check(list string) error {
	if len(r.Name) > MaxRuleNameSize || strings.ContainsFunc(r.Name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return fmt.Errorf("the name %.80q is longer than %d bytes or has control characters", r.Name, MaxRuleNameSize)
	}
	for _, l := range [][]string{r.Domains, r.CIDRs, r.Ports, r.Methods, r.Paths} {
		if len(l) > MaxRuleEntries {
			return fmt.Errorf("a list of %d entries, at most %d are taken", len(l), MaxRuleEntries)
		}
	}
	if r.Protocol != "" && r.Protocol != ProtocolTCP && r.Protocol != ProtocolUDP {
		return &Error{Kind: Invalid, Err: fmt.Errorf("%.40q is no protocol", r.Protocol), Hint: "the protocols are tcp and udp; methods and paths are for HTTP over tcp"}
	}
	if list == "allow" && len(r.Domains)+len(r.CIDRs) == 0 {
		return &Error{Kind: Invalid, Err: errors.New("it names no destination"), Hint: "give domains or cidrs, or take the profile open"}
	}
	if r.Inspects() && (len(r.Domains) == 0 || len(r.CIDRs) > 0 || r.Protocol == ProtocolUDP) {
		return &Error{Kind: Invalid, Err: errors.New("inspect, methods and paths need domains, by tcp, and no cidrs"), Hint: "requests are seen only where the host's name is known"}
	}
	for _, d := range r.Domains {
		if err := CheckDomain(d); err != nil {
			return err
		}
	}
	for _, c := range r.CIDRs {
		if _, err := ParseCIDR(c); err != nil {
			return err
		}
	}
	for _, p := range r.Ports {
		if _, _, err := ParsePorts(p); err != nil {
			return err
		}
	}
	return r.checkRequests()
}

var methodPattern = regexp.MustCompile(`^[A-Z][A-Z-]{0,31}$`)

func (r *Rule) checkRequests() error {
	for _, m := range r.Methods {
		if !methodPattern.MatchString(m) {
			return &Error{Kind: Invalid, Err: fmt.Errorf("%.40q is no method", m), Hint: "write it in capitals: GET"}
		}
	}
	for _, p := range r.Paths {
		if !strings.HasPrefix(p, "/") || len(p) > MaxPathPattern || strings.ContainsFunc(p, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '?' || c == '#' }) {
			return &Error{Kind: Invalid, Err: fmt.Errorf("%.80q is no pattern of paths", p), Hint: "begin with a slash, leave the query out; * stands for anything"}
		}
	}
	return nil
}

var domainLabel = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// CheckDomain reports an error of kind Invalid unless s is a domain of a rule:
// lower case, at least two labels, an optional "*." in front. A name of other
// letters is given in its xn-- form, so that it cannot look like another one.
func CheckDomain(s string) error {
	bad := func(text, hint string) error {
		return &Error{Op: "check domain", Kind: Invalid, Err: fmt.Errorf("%.80q %s", s, text), Hint: hint}
	}
	name := strings.TrimPrefix(s, "*.")
	switch {
	case strings.ContainsFunc(s, func(c rune) bool { return c >= 0x80 }):
		return bad("has letters beyond ASCII", "write the name as DNS does, in its xn-- form: another name may look the same")
	case s != strings.ToLower(s):
		return bad("has capitals", "write it in lower case")
	case strings.Contains(name, "*"):
		return bad("has a star in its midst", "a star stands in front alone, as in *.example.com")
	case len(name) > 253:
		return bad("is longer than 253 bytes", "give a domain such as example.com")
	}
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return bad("is an address", "addresses go to cidrs")
	}
	labels := strings.Split(name, ".")
	if len(labels) < 2 || slices.ContainsFunc(labels, func(l string) bool { return !domainLabel.MatchString(l) }) {
		return bad("is no domain", "give one such as example.com or *.example.com: no scheme, port, path or dot at the end")
	}
	if last := labels[len(labels)-1]; last[0] >= '0' && last[0] <= '9' {
		return bad("ends in a number", "addresses go to cidrs")
	}
	return nil
}

// MatchDomain reports whether a name, in lower case and without a dot at its
// end, is what a rule's domain means.
func MatchDomain(pattern, name string) bool {
	if beneath, ok := strings.CutPrefix(pattern, "*"); ok {
		return len(name) > len(beneath) && strings.HasSuffix(name, beneath)
	}
	return name == pattern
}

// ParseCIDR reads a range of addresses, or one address. Bits beyond the prefix
// and notations that stand for another family's address are Invalid.
func ParseCIDR(s string) (netip.Prefix, error) {
	const hint = "give 93.184.216.0/24, 2606:4700::/32 or one address"
	bad := func(text string) error {
		return &Error{Op: "check cidr", Kind: Invalid, Err: fmt.Errorf("%.60q %s", s, text), Hint: hint}
	}
	p, err := netip.ParsePrefix(s)
	if err != nil {
		a, aerr := netip.ParseAddr(s)
		if aerr != nil {
			return p, bad("is no range of addresses")
		}
		if a.Zone() != "" {
			return p, bad("names an interface")
		}
		p = netip.PrefixFrom(a, a.BitLen())
	}
	if p.Addr().Is4In6() {
		return p, bad("is an IPv4 address written as IPv6")
	}
	if p != p.Masked() {
		return p, bad(fmt.Sprintf("has bits beyond its length: write %s", p.Masked()))
	}
	return p, nil
}

// ParsePorts reads a port or a range of ports, 1 to 65535.
func ParsePorts(s string) (from, to uint16, err error) {
	first, last, ranged := strings.Cut(s, "-")
	if !ranged {
		last = first
	}
	a, aerr := strconv.ParseUint(first, 10, 16)
	b, berr := strconv.ParseUint(last, 10, 16)
	if aerr != nil || berr != nil || a == 0 || a > b || strings.HasPrefix(s, "+") {
		return 0, 0, &Error{Op: "check ports", Kind: Invalid, Err: fmt.Errorf("%.40q is no port", s), Hint: "give 443, or 8000-8999"}
	}
	return uint16(a), uint16(b), nil
}
