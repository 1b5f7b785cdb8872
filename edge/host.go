package edge

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// bareHost is the name in a Host header, in small letters, without port and
// final dot.
func bareHost(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}

// Host is the name of a port's preview beneath a domain.
func Host(id sandbox.ID, port int, domain string) string {
	return strconv.Itoa(port) + "-" + string(id) + "." + domain
}

// parseHost reads "<port>-<id>.<domain>". The domain itself and other names
// beneath it are false.
func parseHost(host, domain string) (sandbox.ID, int, bool) {
	label, ok := strings.CutSuffix(host, "."+domain)
	if !ok {
		return "", 0, false
	}
	number, name, _ := strings.Cut(label, "-")
	id, err := sandbox.ParseID(name)
	if err != nil || number == "" || number[0] == '0' || len(number) > 5 {
		return "", 0, false
	}
	port, err := strconv.ParseUint(number, 10, 16)
	return id, int(port), err == nil
}

// mayBeDomain reports whether a host could be somebody's own domain: neither an
// address nor a name of this server's.
func (e *Edge) mayBeDomain(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || !strings.Contains(host, ".") {
		return false
	}
	return host != e.domain && !strings.HasSuffix(host, "."+e.domain)
}
