package guest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/berth-dev/berth/guestapi"
)

// tunnelDial bounds the connecting to one address inside.
const tunnelDial = 5 * time.Second

// tunnel answers GET /tunnel: it joins the connection to a port of the sandbox,
// whichever of its addresses that is served at.
func (g *Guest) tunnel(w http.ResponseWriter, r *http.Request) {
	port, err := strconv.ParseUint(r.URL.Query().Get("port"), 10, 16)
	if err != nil || port == 0 {
		sendError(w, refuse(invalid, "", "%.20q is not a port", r.URL.Query().Get("port")))
		return
	}
	inner, err := dialInside(r.Context(), uint16(port))
	if err != nil {
		sendError(w, err)
		return
	}
	defer inner.Close()
	outer, rest, err := http.NewResponseController(w).Hijack()
	if err != nil {
		sendError(w, refuse(invalid, "", "a tunnel needs HTTP/1.1"))
		return
	}
	defer outer.Close()
	if _, err := io.WriteString(outer, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+guestapi.TunnelProtocol+"\r\n\r\n"); err != nil {
		return // the host has gone
	}
	join(outer, io.MultiReader(io.LimitReader(rest, int64(rest.Reader.Buffered())), outer), inner)
}

// dialInside connects to the first address at which a port answers. Nothing that
// listens anywhere is NotFound.
func dialInside(ctx context.Context, port uint16) (net.Conn, error) {
	refused := refuse(notFound, "start a server there first", "nothing listens on port %d", port)
	for _, host := range addresses() {
		c, err := (&net.Dialer{Timeout: tunnelDial}).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(int(port))))
		switch {
		case err == nil:
			return c, nil
		case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EADDRNOTAVAIL), errors.Is(err, syscall.EAFNOSUPPORT), errors.Is(err, syscall.ENETUNREACH):
		case ctx.Err() != nil:
			return nil, connect.NewError(canceled, ctx.Err())
		default:
			refused = connect.NewError(connect.CodeUnavailable, err)
		}
	}
	return nil, refused
}

// join passes bytes both ways until both sides have ended, or one has broken.
// The end of one direction is passed on alone.
func join(outer net.Conn, from io.Reader, inner net.Conn) {
	var both sync.WaitGroup
	defer both.Wait()
	pass := func(to net.Conn, from io.Reader) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
			err = half.CloseWrite()
		} else if !ok {
			err = errors.ErrUnsupported
		}
		if err != nil {
			outer.Close()
			inner.Close()
		}
	}
	both.Go(func() { pass(inner, from) })
	both.Go(func() { pass(outer, inner) })
}
