package main

import (
	"io"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// maxPassword bounds what is read as a password, in bytes.
const maxPassword = 64 << 10

// loginFlags say how a registry is logged in to for one build. The password comes
// on standard input: arguments and the environment are seen by others.
type loginFlags struct{ user, registry string }

// into puts the login into a request, if there is one.
func (l *loginFlags) into(in io.Reader, r *sandbox.BuildRequest) error {
	if l.user == "" {
		return nil
	}
	b, err := io.ReadAll(io.LimitReader(in, maxPassword))
	if err != nil {
		return sandbox.Errorf("read password", sandbox.Invalid, "%w", err)
	}
	r.Login = &sandbox.Login{Registry: l.registry, Username: l.user, Password: sandbox.Password(strings.TrimRight(string(b), "\r\n"))}
	return nil
}
