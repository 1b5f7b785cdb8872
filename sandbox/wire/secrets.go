package wire

import "github.com/berth-dev/berth/sandbox"

// SecretValue is the body that gives a secret its value: one of the two.
type SecretValue struct {
	Value  string `json:"value,omitempty"`
	Base64 []byte `json:"base64,omitempty"` // for what is no text
}

// Secrets is the answer that lists them, without their values.
type Secrets struct {
	Secrets []sandbox.Secret `json:"secrets"`
}

// Grants is the answer that lists what a sandbox may have used for it.
type Grants struct {
	Grants []sandbox.Grant `json:"grants"`
}
