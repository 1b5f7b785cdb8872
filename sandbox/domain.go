package sandbox

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Domain is a name of its owner's that stands for a port of a sandbox.
type Domain struct {
	Name     string    `json:"name"`
	Account  string    `json:"account"`
	Sandbox  ID        `json:"sandbox"`
	Port     int       `json:"port"`
	Verified time.Time `json:"verified,omitzero"` // when its owner proved to have it; zero: it does nothing yet
	Created  time.Time `json:"created"`

	// Proof is what its owner does to prove it: one of the two.
	Proof DomainProof `json:"proof"`
}

// DomainProof is a TXT record, or a page at http://<name><path>.
type DomainProof struct {
	TXTName  string `json:"txt_name"`  // "_berth-challenge.<name>"
	TXTValue string `json:"txt_value"` // one of the record's values
	Path     string `json:"path"`      // "/.well-known/berth-challenge/<token>"
	Body     string `json:"body"`      // of the page, blanks around it left out
}

// DomainRequest asks for a domain to stand for a port.
type DomainRequest struct {
	Name    string `json:"name"`
	Sandbox string `json:"sandbox"` // id or name
	Port    int    `json:"port"`
}

// MaxDomains bounds the domains of one account.
const MaxDomains = 100

var domainPattern = regexp.MustCompile(`^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z][a-z0-9-]{0,61}[a-z0-9]$`)

// CheckHostName reports an error of kind Invalid unless s is a host name of two
// labels or more, in ASCII and small letters.
func CheckHostName(s string) error {
	if len(s) > 253 || !domainPattern.MatchString(s) {
		hint := "a domain looks like app.example.com"
		if strings.ContainsFunc(s, func(r rune) bool { return r > 0x7f }) {
			hint = "write it as DNS does, in its xn-- form"
		}
		return &Error{Op: "check domain", Kind: Invalid, Err: fmt.Errorf("%.80q is not a domain", s), Hint: hint}
	}
	return nil
}
