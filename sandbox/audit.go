package sandbox

import (
	"fmt"
	"slices"
	"time"
)

// AuditKind is what an entry of the audit tells of.
type AuditKind string

const (
	AuditConnection AuditKind = "connection" // TCP, UDP or ICMP out of a sandbox
	AuditDNS        AuditKind = "dns"        // a question
	AuditRequest    AuditKind = "request"    // of HTTP, where a policy looks at requests
	AuditPolicy     AuditKind = "policy"     // a policy came into force
	AuditDropped    AuditKind = "dropped"    // Count entries of the sandbox were not written: too many came at once
)

// AuditKinds lists every kind.
func AuditKinds() []AuditKind {
	return []AuditKind{AuditConnection, AuditDNS, AuditRequest, AuditPolicy, AuditDropped}
}

// Verdict is what became of what a sandbox tried.
type Verdict string

const (
	VerdictAllowed Verdict = "allowed"
	VerdictDenied  Verdict = "denied" // by policy or by the server's own rules
	VerdictFailed  Verdict = "failed" // allowed, but its other end did not answer
)

// AuditEntry is one thing that a sandbox did or tried towards the outside. An
// entry of a connection is written when it ends.
type AuditEntry struct {
	Cursor   string    `json:"cursor"` // its place: a reader goes on after it
	Time     time.Time `json:"time"`   // when it began
	Sandbox  ID        `json:"sandbox"`
	Account  string    `json:"account,omitempty"`
	Kind     AuditKind `json:"kind"`
	Verdict  Verdict   `json:"verdict,omitempty"`
	Rule     string    `json:"rule,omitempty"`   // that decided: its name or place, or "profile open"
	Reason   string    `json:"reason,omitempty"` // of a refusal, a failure or a cut
	Protocol string    `json:"protocol,omitempty"`
	Host     string    `json:"host,omitempty"` // the name that was asked or shown
	Address  string    `json:"address,omitempty"`
	Port     uint16    `json:"port,omitempty"`

	Sent       int64 `json:"sent,omitempty"`        // bytes out of the sandbox
	Received   int64 `json:"received,omitempty"`    // bytes into it
	DurationMS int64 `json:"duration_ms,omitempty"` //

	Question   string   `json:"question,omitempty"`   // of DNS: its type
	Answers    []string `json:"answers,omitempty"`    // of DNS: addresses, at most 8
	Method     string   `json:"method,omitempty"`     // of a request
	Path       string   `json:"path,omitempty"`       // of a request, without its query
	Status     int      `json:"status,omitempty"`     // of a request's answer
	Credential string   `json:"credential,omitempty"` // the names of the secrets that were put in, and of headers with values of the policy
	Count      int64    `json:"count,omitempty"`      // how many such; 0 means one
}

// AuditQuery selects entries, oldest first.
type AuditQuery struct {
	Sandbox string      // id; "" means all
	Account string      // "" means all
	Kinds   []AuditKind // none means all
	Denied  bool        // refusals alone
	Since   time.Time   // zero means from the first
	After   string      // cursor of the last entry seen; "" means by Since
	Limit   int         // 1 to MaxPage; 0 means DefaultPage
}

// AuditPage is a part of the audit. Next serves to go on, also at its end.
type AuditPage struct {
	Entries []AuditEntry `json:"entries"`
	Next    string       `json:"next"`
	Missed  bool         `json:"missed,omitempty"` // entries after the cursor were removed meanwhile, by age or size
}

// Check reports an error of kind Invalid for what no page can be.
func (q *AuditQuery) Check() error {
	if q.Limit < 0 || q.Limit > MaxPage {
		return &Error{Op: "check audit query", Kind: Invalid, Err: fmt.Errorf("limit is %d", q.Limit),
			Hint: fmt.Sprintf("limit takes 1 to %d; leave it out for %d", MaxPage, DefaultPage)}
	}
	for _, k := range q.Kinds {
		if !slices.Contains(AuditKinds(), k) {
			return &Error{Op: "check audit query", Kind: Invalid, Err: fmt.Errorf("%.40q is no kind of entry", k),
				Hint: fmt.Sprintf("the kinds are %v", AuditKinds())}
		}
	}
	return nil
}

// Traffic is what has passed a sandbox's gateway, in bytes.
type Traffic struct {
	Sent     int64 `json:"sent"`     // out of the sandbox
	Received int64 `json:"received"` // into it
}

// AuditStream is a stream of entries, which goes on with those to come. Close
// ends it and may be called at any time, twice too.
type AuditStream interface {
	Recv() (AuditEntry, error)
	Close() error
}
