package sandbox

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Bounds on the Values of a policy.
const (
	MaxValueBytes = 256 << 10 // of all texts together, with the names of their headers
	MinMasked     = 6         // bytes: what is shorter would be found everywhere in an answer
)

// HeaderText is the text of a header that a policy sets as it stands. It goes in
// and does not come back: the server seals it, and it prints as nothing.
type HeaderText string

// String keeps a text out of whatever prints it.
func (HeaderText) String() string { return "[secret]" }

// GoString keeps a text out of whatever prints it.
func (HeaderText) GoString() string { return "[secret]" }

// RuleValue is one of the Values of a rule, apart from its policy.
type RuleValue struct {
	Key    string      // see Inject.ValueKey
	Host   string      // of the rule
	Header string      // as the rule writes it
	Text   *HeaderText // nil: the one that is kept already
}

// ValueKey is what the value of a header is found by: the rule's host, what it
// matches, and the header. Rules that agree in all of these share it.
func (r *Inject) ValueKey(header string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %q %q %s", r.Host, r.Methods, r.Paths, strings.ToLower(header)))
	return hex.EncodeToString(sum[:16])
}

// Detach parts a policy from the texts of its Values: the policy that comes back
// has a nil for each. What it refers to is copied as far as it differs.
func (p *Policy) Detach() (*Policy, []RuleValue) {
	bare := *p
	bare.ValueSet = ""
	bare.Inject = slices.Clone(p.Inject)
	var all []RuleValue
	for i := range bare.Inject {
		r := &bare.Inject[i]
		if len(r.Values) == 0 {
			continue
		}
		given := r.Values
		r.Values = make(map[string]*HeaderText, len(given))
		for _, header := range slices.Sorted(maps.Keys(given)) {
			r.Values[header] = nil
			all = append(all, RuleValue{Key: r.ValueKey(header), Host: r.Host, Header: header, Text: given[header]})
		}
	}
	if len(all) > 0 {
		bare.ValueSet = "vs-" + strings.ToLower(rand.Text()[:20])
	}
	return &bare, all
}

// HasValues reports whether any rule has Values.
func (p *Policy) HasValues() bool {
	return p != nil && slices.ContainsFunc(p.Inject, func(r Inject) bool { return len(r.Values) > 0 })
}

// checkValues reports what is wrong with the Values of a rule. No text is in the
// error.
func (r *Inject) checkValues() error {
	for k, v := range r.Values {
		if err := CheckInjectHeader(k); err != nil {
			return err
		}
		if again(r.Values, k) || (r.Basic != nil && strings.EqualFold(k, "Authorization")) || hasFold(r.Header, k) {
			return fmt.Errorf("the header %s comes twice", k)
		}
		if v == nil {
			continue
		}
		if r.Mask && len(strings.TrimSpace(string(*v))) < MinMasked {
			return fmt.Errorf("the value of the header %s is too short to be masked: %d bytes are needed", k, MinMasked)
		}
		if len(*v) > MaxInjectValue {
			return fmt.Errorf("the value of the header %s has %d bytes, at most %d are taken", k, len(*v), MaxInjectValue)
		}
		if strings.ContainsFunc(string(*v), func(c rune) bool { return (c < 0x20 && c != '\t') || c == 0x7f }) {
			return fmt.Errorf("the value of the header %s holds a line break or another control character", k)
		}
	}
	return nil
}

// checkValueBytes bounds the Values of all rules together.
func (p *Policy) checkValueBytes() error {
	size := 0
	for i := range p.Inject {
		for k, v := range p.Inject[i].Values {
			size += len(k)
			if v != nil {
				size += len(*v)
			}
		}
	}
	if size > MaxValueBytes {
		return &Error{Op: "check policy", Kind: Invalid, Err: fmt.Errorf("the values of its inject rules have %d bytes, at most %d are taken", size, MaxValueBytes),
			Hint: "keep long values as secrets, and name those"}
	}
	return nil
}

// CheckNoValues reports an error of kind Invalid if any rule has Values: what the
// policy is for is not one sandbox.
func (p *Policy) CheckNoValues() error {
	if !p.HasValues() {
		return nil
	}
	return &Error{Op: "check policy", Kind: Invalid, Err: errors.New("an inject rule has values, which are one sandbox's own"),
		Hint: "make a secret of each, and name it in header"}
}

// hasFold reports whether k is a key of m but for upper and lower case.
func hasFold(m map[string]string, k string) bool {
	for o := range m {
		if strings.EqualFold(o, k) {
			return true
		}
	}
	return false
}

// MatchesHost reports whether the rule is about a host, in lower case.
func (r *Inject) MatchesHost(name string) bool {
	return MatchDomain(r.Host, name) && !slices.ContainsFunc(r.Except, func(d string) bool { return MatchDomain(d, name) })
}

// checkHosts reports what is wrong with where the rule applies.
func (r *Inject) checkHosts() error {
	if err := checkInjectHost(r.Host); err != nil {
		return err
	}
	if len(r.Except) > MaxExcepts {
		return fmt.Errorf("it excepts %d hosts, at most %d are taken", len(r.Except), MaxExcepts)
	}
	for _, d := range r.Except {
		if err := checkInjectHost(d); err != nil {
			return err
		}
		if d == r.Host || !coversDomain(r.Host, d) {
			return fmt.Errorf("it excepts %s, which is not beneath its host", d)
		}
	}
	return nil
}

// checkInjectHost is CheckDomain that also takes all names beneath a single
// label, as in *.com.
func checkInjectHost(s string) error {
	if label, ok := strings.CutPrefix(s, "*."); ok && domainLabel.MatchString(label) && (label[0] < '0' || label[0] > '9') {
		return nil
	}
	return CheckDomain(s)
}
