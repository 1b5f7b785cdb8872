package sandbox

import (
	"errors"
	"regexp"
)

// Bounds on a login.
const (
	maxLoginUser     = 256
	maxLoginPassword = 16 << 10 // a key document may serve as one
)

// Password is a secret text on its way in. It prints as nothing; its JSON is the
// text itself.
type Password string

// String keeps a password out of whatever prints it.
func (Password) String() string { return "[secret]" }

// GoString keeps a password out of whatever prints it.
func (Password) GoString() string { return "[secret]" }

// Login is what a build shows to a registry to be given a private image. It serves
// that build alone and is written down nowhere.
type Login struct {
	Registry string   `json:"registry,omitempty"` // "HOST" or "HOST:PORT" that may see it; "" means that of From
	Username string   `json:"username"`
	Password Password `json:"password"`
}

var registryPattern = regexp.MustCompile(`^[A-Za-z0-9.-]{1,253}(:[0-9]{1,5})?$`)

// check reports an error of kind Invalid for the first thing that is wrong.
func (l *Login) check(r *BuildRequest) error {
	const op = "check login"
	form := ""
	if len(r.From) > 4 {
		form = r.From[:4]
	}
	switch {
	case l.Username == "" || len(l.Username) > maxLoginUser || l.Password == "" || len(l.Password) > maxLoginPassword:
		return Errorf(op, Invalid, "a login has a username of 1 to %d bytes and a password of 1 to %d", maxLoginUser, maxLoginPassword)
	case l.Registry != "" && !registryPattern.MatchString(l.Registry):
		return Errorf(op, Invalid, "%.80q is not a registry", l.Registry)
	case l.Registry == "" && (form != "oci:" || r.Dockerfile != ""):
		return &Error{Op: op, Kind: Invalid, Err: errors.New("it does not say which registry may see it"), Hint: "name the registry's host, or build from oci:<reference>"}
	}
	return nil
}
