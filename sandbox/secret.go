package sandbox

import (
	"fmt"
	"regexp"
	"time"
)

// Bounds on secrets.
const (
	MaxSecretValue = 64 << 10 // bytes
	MaxSecrets     = 1000     // of an account
)

// Secret is what may be known of a secret: all but its value, which no verb
// returns.
type Secret struct {
	Name    string    `json:"name"`
	Version int64     `json:"version"` // 1 at first, one more with each new value
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"` // when it got its present value
}

// SecretValue is the value of a secret on its way in. It prints as nothing.
type SecretValue []byte

// String keeps a value out of whatever prints it.
func (SecretValue) String() string { return "[secret]" }

// GoString keeps a value out of whatever prints it.
func (SecretValue) GoString() string { return "[secret]" }

// Wipe overwrites the value.
func (v SecretValue) Wipe() { clear(v) }

var secretPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// CheckSecretName reports an error of kind Invalid unless s can name a secret: 1
// to 63 characters of [A-Za-z0-9._-], the first a letter or a digit.
func CheckSecretName(s string) error {
	if !secretPattern.MatchString(s) {
		return &Error{Op: "check secret's name", Kind: Invalid, Err: fmt.Errorf("%.80q is not a name", s),
			Hint: "a name has 1 to 63 characters of A-Z a-z 0-9 . _ - and starts with a letter or a digit"}
	}
	return nil
}

// CheckSecretValue reports an error of kind Invalid unless v can be a secret's
// value. What it holds is in no error.
func CheckSecretValue(v SecretValue) error {
	if len(v) == 0 || len(v) > MaxSecretValue {
		return &Error{Op: "check secret's value", Kind: Invalid, Err: fmt.Errorf("it has %d bytes", len(v)),
			Hint: fmt.Sprintf("a value has 1 to %d bytes", MaxSecretValue)}
	}
	return nil
}
