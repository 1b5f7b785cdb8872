package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Profile is what a sandbox may reach when no rule speaks.
type Profile string

const (
	ProfileOpen  Profile = "open"       // everything public, by TCP
	ProfileAllow Profile = "allow-list" // nothing but what an allow rule names
	ProfileNone  Profile = "none"       // nothing at all
)

// Profiles lists every profile.
func Profiles() []Profile { return []Profile{ProfileOpen, ProfileAllow, ProfileNone} }

// Protocol is what a rule is about.
type Protocol string

const (
	ProtocolTCP Protocol = "tcp"
	ProtocolUDP Protocol = "udp"
)

// Policy is what a sandbox may reach: one document, whose rules have no order. A
// deny rule that matches wins over every allow rule, and any rule over the
// profile. No policy reaches what the server's operator has not opened: the
// host, other sandboxes, and private, link-local, metadata, multicast or
// reserved addresses, under any name.
type Policy struct {
	Profile Profile  `json:"profile"`
	Allow   []Rule   `json:"allow,omitempty"`
	Deny    []Rule   `json:"deny,omitempty"`
	Inject  []Inject `json:"inject,omitempty"` // credentials, and handlers, by host

	// Divert names a part of the server that decides over each connection before
	// the rules do, on behalf of a door that serves the sandbox: what it does not
	// take over is left to them.
	Divert string `json:"divert,omitempty"`

	// DivertTLS has the sandbox trust its own authority: what Divert names may end its
	// TLS.
	DivertTLS bool `json:"divert_tls,omitempty"`

	// ValueSet is what the server keeps the Values of Inject under. It is in no
	// document: whoever puts a policy into force sets it.
	ValueSet string `json:"-"`
}

// Rule matches connections. Of the conditions that it gives, all must hold; of
// each list, one entry. Domains and CIDRs together say where to: one entry of
// either must match, and if both are left out every destination does.
type Rule struct {
	Name     string   `json:"name,omitempty"`     // for the audit; "" means its place, "allow[0]"
	Domains  []string `json:"domains,omitempty"`  // "example.com" alone, "*.example.com" for all beneath it
	CIDRs    []string `json:"cidrs,omitempty"`    // "93.184.216.0/24", "2606:4700::/32", or one address
	Ports    []string `json:"ports,omitempty"`    // "443", "8000-8999"; none means all
	Protocol Protocol `json:"protocol,omitempty"` // "" means tcp; for a deny rule both

	// The rest is about the requests of HTTP, with or without TLS, and needs
	// domains: what names such a domain is inspected.
	Inspect bool     `json:"inspect,omitempty"` // look at every request: its host must be the one that was dialled
	Methods []string `json:"methods,omitempty"` // "GET"; none means all
	Paths   []string `json:"paths,omitempty"`   // "/v1/models", "/repos/*": a star stands for anything, slashes too
}

// Inspects reports whether the rule needs to see requests.
func (r *Rule) Inspects() bool { return r.Inspect || len(r.Methods) > 0 || len(r.Paths) > 0 }

// Bounds on a policy.
const (
	MaxPolicyBytes  = 256 << 10 // of its document
	MaxPolicyRules  = 1024      // of each list
	MaxRuleEntries  = 1024      // of each list of a rule
	MaxPathPattern  = 1024      // bytes
	MaxRuleNameSize = 64        // bytes
)

// DefaultPolicy is the policy of whoever gives none.
func DefaultPolicy() Policy { return Policy{Profile: ProfileOpen} }

// ParsePolicy reads a policy's document, strictly, and checks it.
func ParsePolicy(b []byte) (Policy, error) {
	const op = "read policy"
	var p Policy
	if len(b) > MaxPolicyBytes {
		return p, Errorf(op, Invalid, "it has %d bytes, at most %d are taken", len(b), MaxPolicyBytes)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&p); err != nil {
		return p, &Error{Op: op, Kind: Invalid, Err: err, Hint: "GET /v1/policy.schema.json tells what a policy may say"}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return p, &Error{Op: op, Kind: Invalid, Err: errors.New("something follows the document"), Hint: "give one JSON object"}
	}
	return p, p.Check()
}

// RuleName is how the audit calls a rule: its name, or its place in its list.
func (r *Rule) RuleName(list string, i int) string {
	if r.Name != "" {
		return r.Name
	}
	return fmt.Sprintf("%s[%d]", list, i)
}
