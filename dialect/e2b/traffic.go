package e2b

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// The ports of a sandbox that are served here, not inside it.
const (
	guestPort  = 49983
	kernelPort = 49999
)

const (
	headerID   = "E2b-Sandbox-Id"
	headerPort = "E2b-Sandbox-Port"
)

// errGone is what anyone learns of a sandbox that is not there, or sleeps and is
// not to be woken.
var errGone = errors.New("The sandbox was not found")

func hasTarget(r *http.Request) bool {
	return r.Header.Get(headerID) != "" || r.Header.Get(headerPort) != ""
}

// sharedHost reports whether headers, not the host's name, tell the sandbox.
func sharedHost(host, domain string) bool {
	if host == "localhost" || host == "sandbox."+domain || host == domain {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

var idPattern = regexp.MustCompile(`^[a-z0-9]{1,64}$`)

// splitHost reads <port>-<id>.<anything>.
func splitHost(host string) (port int, id string, ok bool) {
	label, _, _ := strings.Cut(host, ".")
	text, id, found := strings.Cut(label, "-")
	port, err := strconv.Atoi(text)
	return port, id, found && err == nil && port > 0 && port < 65536 && idPattern.MatchString(id)
}

// serveHeaders serves a request whose headers name a sandbox and a port.
func (d *Dialect) serveHeaders(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get(headerID)
	port, err := strconv.Atoi(r.Header.Get(headerPort))
	if err != nil || port < 1 || port > 65535 || !idPattern.MatchString(id) {
		http.Error(w, "Invalid sandbox headers: "+headerID+" and "+headerPort+" name a sandbox and a port, both", http.StatusBadRequest)
		return
	}
	d.servePort(w, r, id, port)
}

// serveHost serves a request whose host names a sandbox and a port.
func (d *Dialect) serveHost(w http.ResponseWriter, r *http.Request, host string) {
	port, id, ok := splitHost(host)
	if !ok {
		http.Error(w, "Invalid host: it names no port and sandbox", http.StatusBadRequest)
		return
	}
	d.servePort(w, r, id, port)
}

func (d *Dialect) servePort(w http.ResponseWriter, r *http.Request, id string, port int) {
	switch port {
	case guestPort:
		d.serveGuest(w, r, id)
	case kernelPort:
		d.serveCode(w, r, id)
	default:
		d.forward(w, r, id, port)
	}
}

// reachable is a sandbox that traffic may come to: it runs, or may be woken. All
// else is errGone.
func (d *Dialect) reachable(ctx context.Context, id string) (sandbox.Sandbox, error) {
	s, err := d.engine.Get(ctx, id)
	switch kind := sandbox.KindOf(err); {
	case kind == sandbox.NotFound || kind == sandbox.Invalid:
		return s, errGone
	case err != nil:
		return s, err
	}
	switch {
	case s.State == sandbox.Running || s.State == sandbox.Starting:
		return s, nil
	case s.State == sandbox.Paused && (s.Wake == nil || *s.Wake):
		return s, nil
	}
	return s, errGone
}

// renderTraffic answers a request to a port with an error.
func (d *Dialect) renderTraffic(w http.ResponseWriter, r *http.Request, id string, err error) {
	e := trafficError{SandboxID: id, Message: err.Error(), Code: http.StatusBadGateway}
	var f *fault
	switch {
	case errors.Is(err, errGone):
	case errors.As(err, &f):
		e.Code = f.status
	default:
		switch sandbox.KindOf(err) {
		case sandbox.NotFound:
			e.Message = errGone.Error()
		case sandbox.Conflict:
			e.Code, e.Message = http.StatusConflict, "The sandbox is still transitioning: try again in a moment"
		case sandbox.Exhausted:
			e.Code = http.StatusTooManyRequests
		case sandbox.Internal:
			d.log.Error("internal error", "sandbox", id, "path", r.URL.Path, "error", err)
			e.Message = "internal error"
		}
	}
	renderPort(w, r, e)
}
