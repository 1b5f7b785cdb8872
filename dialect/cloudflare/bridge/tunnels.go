package bridge

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// ports that a tunnel may lead to; port 3000 is the server's inside.
const (
	leastPort = 1024
	innerPort = 3000
)

func portOf(r *http.Request) (int, error) {
	port, err := strconv.ParseUint(r.PathValue("port"), 10, 16)
	if err != nil || port < leastPort || port == innerPort {
		return 0, invalid("Invalid port")
	}
	return int(port), nil
}

// openTunnel opens a port to everybody who knows its URL, which is that of the port's
// preview and so the same each time.
func (b *Bridge) openTunnel(w http.ResponseWriter, r *http.Request) error {
	port, err := portOf(r)
	if err != nil {
		return err
	}
	var req newTunnel
	if err := decode(w, r, &req, true); err != nil {
		return err
	}
	if req.Name != "" {
		return &fault{status: http.StatusBadGateway, code: codeTunnel,
			text: "tunnel failed: a named tunnel needs a zone of the vendor's (add a domain of yours with berth domain add)"}
	}
	given, err := b.publish(r, port, true)
	if err != nil {
		return err
	}
	address := b.PortURL(given.Sandbox, port)
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return failed("tunnel failed", codeTunnel, &sandbox.Error{Op: "name port", Kind: sandbox.Unsupported,
			Err: errors.New("this server serves no previews"), Hint: "start it with a domain"})
	}
	return writeJSON(w, tunnel{ID: string(given.Sandbox) + "-" + strconv.Itoa(port), Port: port, URL: address, Hostname: u.Hostname(),
		CreatedAt: time.Now().UTC().Format(isoTime)})
}

func (b *Bridge) closeTunnel(w http.ResponseWriter, r *http.Request) error {
	port, err := portOf(r)
	if err != nil {
		return err
	}
	if _, err := b.publish(r, port, false); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// publish opens a port to everybody, or closes it.
func (b *Bridge) publish(r *http.Request, port int, public bool) (sandbox.Share, error) {
	id, err := b.box(r)
	if err != nil {
		return sandbox.Share{}, err
	}
	given, err := b.Engine.Share(r.Context(), id, port, sandbox.ShareRequest{Public: &public, Revoke: !public})
	return given, failed("tunnel failed", codeTunnel, err)
}
