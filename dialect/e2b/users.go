package e2b

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/sandbox"
)

// maxUsers bounds what is read of a sandbox's list of users, in bytes.
const maxUsers = 1 << 20

// errNoUser is of a user that the sandbox does not have.
var errNoUser = errors.New("no such user")

// settleUser finds out where the user lives whom a request names, or the template.
// errNoUser: the request's is not there.
func (d *Dialect) settleUser(ctx context.Context, t *target) error {
	name := cmp.Or(t.user, t.User, defaultUser)
	if name == defaultUser || name == "root" {
		return nil
	}
	list, _, err := d.engine.ReadFile(ctx, t.id, "/etc/passwd", sandbox.ReadRange{Length: maxUsers})
	switch kind := sandbox.KindOf(err); {
	case kind == sandbox.NotFound || kind == sandbox.Unsupported: // without a list all are as they are called
		return nil
	case err != nil:
		return err
	}
	defer list.Close()
	home, ok, err := homeIn(list, name)
	switch {
	case err != nil:
		return err
	case ok:
		t.home = home
	case t.user != "":
		return errNoUser
	}
	return nil
}

// homeIn finds the home of a user, by name or number, in a list as /etc/passwd is.
func homeIn(list io.Reader, name string) (home string, ok bool, err error) {
	lines := bufio.NewScanner(io.LimitReader(list, maxUsers))
	for lines.Scan() {
		f := strings.Split(lines.Text(), ":")
		if len(f) >= 6 && slices.Contains([]string{f[0], f[2]}, name) && strings.HasPrefix(f[5], "/") {
			return f[5], true, nil
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return "", false, nil // no list of users
	}
	return "", false, lines.Err()
}

// users refuses calls in the name of users that are not there.
type users struct{ *Dialect }

func (u users) settle(ctx context.Context) error {
	t := targetOf(ctx)
	err := u.settleUser(ctx, t)
	if errors.Is(err, errNoUser) {
		return t.unknownUser()
	}
	return u.rpcError(err)
}

// WrapUnary checks before the call.
func (u users) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, r connect.AnyRequest) (connect.AnyResponse, error) {
		if err := u.settle(ctx); err != nil {
			return nil, err
		}
		return next(ctx, r)
	}
}

// WrapStreamingClient does nothing: there are no clients here.
func (u users) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// WrapStreamingHandler checks before the stream begins.
func (u users) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		if err := u.settle(ctx); err != nil {
			return err
		}
		return next(ctx, conn)
	}
}
