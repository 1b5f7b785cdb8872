package sandbox

import (
	"crypto/rand"
	"fmt"
	"regexp"
)

// ID names one sandbox for ever: 20 characters of [a-z0-9], the first a letter.
// It holds no dash, so that "<port>-<id>" splits in one way only, and all ids
// have one length, so that none is another's prefix.
type ID string

// IDLength is the number of characters of every ID.
const IDLength = 20

const (
	letters  = "abcdefghijklmnopqrstuvwxyz"
	alphanum = letters + "0123456789"
)

// NewID returns a fresh random ID with about 103 bits of entropy.
func NewID() ID {
	b := make([]byte, IDLength)
	b[0] = pick(letters)
	for i := 1; i < len(b); i++ {
		b[i] = pick(alphanum)
	}
	return ID(b)
}

// pick draws one character without modulo bias.
func pick(set string) byte {
	var b [1]byte
	limit := 256 - 256%len(set)
	for {
		rand.Read(b[:]) // never fails: it ends the program instead
		if int(b[0]) < limit {
			return set[int(b[0])%len(set)]
		}
	}
}

// ParseID returns s as an ID, or an error of kind Invalid that says what an id
// looks like.
func ParseID(s string) (ID, error) {
	if len(s) != IDLength {
		return "", Errorf("parse id", Invalid, "a sandbox id has %d characters, this has %d", IDLength, len(s))
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z':
		case c >= '0' && c <= '9' && i > 0:
		default:
			return "", Errorf("parse id", Invalid, "a sandbox id is [a-z][a-z0-9]*, character %d is %q", i+1, c)
		}
	}
	return ID(s), nil
}

var namePattern = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// CheckName reports an error of kind Invalid unless s can name a template or a
// sandbox: 1 to 63 characters of [a-z0-9._-], the first a letter or a digit.
func CheckName(s string) error {
	if !namePattern.MatchString(s) {
		return &Error{Op: "check name", Kind: Invalid, Err: fmt.Errorf("%.80q is not a name", s),
			Hint: "a name has 1 to 63 characters of a-z 0-9 . _ - and starts with a letter or a digit"}
	}
	return nil
}
