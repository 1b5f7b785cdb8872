package guestclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"

	"github.com/berth-dev/berth/guestapi"
	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/sandbox"
)

// maxListening bounds the ports that are taken over.
const maxListening = 256

// Ports tells on which ports something listens, by number; with owners, whose
// they are.
func (c *Client) Ports(ctx context.Context, owners bool) ([]sandbox.Port, error) {
	const op = "list ports"
	r, err := call(c.to(ctx), op, c.ports.ListPorts, &guestv1.ListPortsRequest{Owners: owners})
	if err != nil {
		return nil, err
	}
	if len(r.Ports) > maxListening {
		return nil, broken(op, "%d ports", len(r.Ports))
	}
	all := make([]sandbox.Port, 0, len(r.Ports))
	for _, p := range r.Ports {
		a, err := netip.ParseAddr(p.Address)
		if err != nil || p.Port < 1 || p.Port > 65535 || len(all) > 0 && all[len(all)-1].Port >= int(p.Port) {
			return nil, broken(op, "port %d at %.40q", p.Port, p.Address)
		}
		all = append(all, sandbox.Port{Port: int(p.Port), Listening: true, Address: a.String(),
			PID: int(max(p.Pid, 0)), Command: text(string(p.Command), maxName)})
	}
	return all, nil
}

// Tunnel connects to a port of the sandbox from inside, at whichever of its
// addresses it is served, loopback included. The connection outlives ctx. Where
// nothing listens the error has sandbox.ErrNotListening in its chain.
func (c *Client) Tunnel(ctx context.Context, port uint16) (net.Conn, error) {
	op := fmt.Sprintf("dial port %d", port)
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, unreached(ctx, op, err)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	joined, err := upgrade(op, conn, port)
	if !stop() {
		err = unreached(ctx, op, context.Cause(ctx))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return joined, nil
}

// upgrade asks the guest to go on to a port. The guest's answer is bounded in
// size by the reader, and in time by the caller.
func upgrade(op string, conn net.Conn, port uint16) (net.Conn, error) {
	_, err := fmt.Fprintf(conn, "GET %s?port=%d HTTP/1.1\r\nHost: guest\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", tunnelRoute, port, guestapi.TunnelProtocol)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: err}
	}
	bounded := &io.LimitedReader{R: conn, N: maxHeader}
	in := bufio.NewReaderSize(bounded, 4096)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: errorf("reach the guest: %w", err)}
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		early, err := in.Peek(in.Buffered())
		if err != nil {
			return nil, broken(op, "%w", err)
		}
		return &tunnelConn{Conn: conn, early: append([]byte(nil), early...)}, nil
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxHeader))
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Unavailable, Err: errorf("reach the guest: %w", err)}
	}
	err = decodeError(op, resp.StatusCode, data)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, sandbox.NotListening(port)
	}
	return nil, err
}

const tunnelRoute = "/tunnel"

// tunnelConn is a connection whose first bytes came with the guest's answer.
type tunnelConn struct {
	net.Conn
	early []byte
}

func (t *tunnelConn) Read(p []byte) (int, error) {
	if len(t.early) > 0 {
		n := copy(p, t.early)
		t.early = t.early[n:]
		return n, nil
	}
	return t.Conn.Read(p)
}

// CloseWrite ends what is sent and leaves what comes.
func (t *tunnelConn) CloseWrite() error {
	if half, ok := t.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
