package netgw

import (
	"context"
	"fmt"
	"net"

	"github.com/berth-dev/berth/sandbox"
)

// DialPublic opens a TCP connection for whoever may name an address but is not to
// reach more by it than a sandbox could: no address that is closed to all of them.
func (g *Gateway) DialPublic(ctx context.Context, network, address string) (net.Conn, error) {
	const op = "dial"
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Invalid, Err: err}
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: err}
	}
	last := error(&sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: fmt.Errorf("%.100q has no address", host)})
	for _, a := range all {
		if why := g.closed(a.Unmap()); why != "" {
			last = &sandbox.Error{Op: op, Kind: sandbox.Forbidden, Err: fmt.Errorf("%s: %s", a, why), Hint: "take a public address"}
			continue
		}
		c, err := g.dial(ctx, network, net.JoinHostPort(a.Unmap().String(), port))
		if err == nil {
			return c, nil
		}
		last = &sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: err}
	}
	return nil, last
}
