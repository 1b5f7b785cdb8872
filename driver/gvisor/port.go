package gvisor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/sandbox"
)

// portTime bounds connecting to a port: the link is local, and what does not
// answer on it soon drops what it gets.
const portTime = 5 * time.Second

var _ driver.Ports = (*machine)(nil)

// DialPort implements driver.Ports, from the gateway's address.
func (m *machine) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	op := fmt.Sprintf("dial port %d", port)
	if port == guestapi.Port {
		return nil, &sandbox.Error{Op: op, ID: m.id, Kind: sandbox.Forbidden, Err: errors.New("it is the guest's own")}
	}
	select {
	case <-m.over:
		return nil, &sandbox.Error{Op: op, ID: m.id, Kind: sandbox.Unavailable, Err: errGone}
	default:
	}
	bound, cancel := context.WithTimeout(ctx, portTime)
	defer cancel()
	c, err := m.link.DialGuest(bound, port)
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, &sandbox.Error{Op: op, ID: m.id, Err: context.Cause(ctx)}
	case refused(err):
		return nil, sandbox.NotListening(port)
	}
	return nil, &sandbox.Error{Op: op, ID: m.id, Kind: sandbox.Unavailable, Err: err}
}

// refused reports whether the sandbox answered that nobody is there. The stack's
// errors have no identity beyond their text.
func refused(err error) bool { return strings.Contains(err.Error(), "connection was refused") }
