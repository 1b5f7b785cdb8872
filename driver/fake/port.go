package fake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/sandbox"
)

var _ driver.Ports = (*machine)(nil)

// DialPort connects to a port of the host's: all machines share them.
func (m *machine) DialPort(ctx context.Context, port uint16) (net.Conn, error) {
	op := fmt.Sprintf("dial port %d", port)
	if port == guestapi.Port {
		return nil, &sandbox.Error{Op: op, ID: m.id, Kind: sandbox.Forbidden, Err: errors.New("it is the guest's own")}
	}
	select {
	case <-m.done:
		return nil, &sandbox.Error{Op: op, ID: m.id, Err: errEnded()}
	default:
	}
	c, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, &sandbox.Error{Op: op, ID: m.id, Err: context.Cause(ctx)}
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, sandbox.NotListening(port)
	}
	return nil, &sandbox.Error{Op: op, ID: m.id, Kind: sandbox.Unavailable, Err: err}
}
