package wire

import "github.com/berth-dev/berth/sandbox"

// PolicySet is the answer of PUT /v1/sandboxes/{id}/policy.
type PolicySet struct {
	Policy   sandbox.Policy `json:"policy"`
	Warnings []string       `json:"warnings,omitempty"` // rules that add nothing
}
