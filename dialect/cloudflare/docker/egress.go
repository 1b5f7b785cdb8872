package docker

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// DiverterName is what policies call Egress.
const DiverterName = "workerd"

const (
	maxHosts   = 1024             // of a route
	answerTime = 30 * time.Second // for workerd to say what becomes of a connection
)

// Route says what becomes of a container's traffic.
type Route struct {
	Port     int      `json:"port,omitempty"`  // of the loopback, where workerd decides over connections
	Hosts    []string `json:"hosts,omitempty"` // that it serves, even if there are no such names; * stands for anything
	Internet bool     `json:"internet"`        // what it does not want may go on
}

// Authority certifies hosts to sandboxes.
type Authority interface {
	// Certificate is what a sandbox must trust, as PEM.
	Certificate(ctx context.Context, id sandbox.ID) ([]byte, error)
	// Inherit has one's certificates lead to another's authority too.
	Inherit(ctx context.Context, parent, child sandbox.ID) error
	Forget(ctx context.Context, id sandbox.ID) error
	// Terminate ends the TLS of a sandbox's connection to host.
	Terminate(ctx context.Context, id sandbox.ID, host string, c net.Conn) (net.Conn, error)
}

// Egress decides over the connections of containers by asking workerd. A sandbox of
// which it knows nothing reaches nothing.
type Egress struct {
	authority Authority

	mu     sync.Mutex
	routes map[sandbox.ID]Route
}

// NewEgress returns an Egress that knows of no container.
func NewEgress(a Authority) *Egress {
	return &Egress{authority: a, routes: map[sandbox.ID]Route{}}
}

// Set says what becomes of a sandbox's traffic from now on.
func (e *Egress) Set(id sandbox.ID, r Route) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.routes[id] = r
}

// Unset lets a sandbox reach nothing.
func (e *Egress) Unset(id sandbox.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.routes, id)
}

func (e *Egress) of(id sandbox.ID) (Route, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, ok := e.routes[id]
	return r, ok
}

// bequeath has the certificates of a sandbox lead to an authority that was told of
// before it was made, which then is no more.
func (e *Egress) bequeath(ctx context.Context, from, to sandbox.ID) error {
	if err := e.authority.Inherit(ctx, from, to); err != nil {
		return err
	}
	return e.forget(ctx, from)
}

func (e *Egress) forget(ctx context.Context, id sandbox.ID) error { return e.authority.Forget(ctx, id) }

// Name says whether a sandbox may learn of a name, and whether workerd serves it
// even if there is no such name.
func (e *Egress) Name(id sandbox.ID, name string) (known, served bool) {
	r, ok := e.of(id)
	if !ok {
		return false, false
	}
	served = r.serves(name)
	return served || r.Internet, served
}

func (r *Route) serves(name string) bool {
	for _, h := range r.Hosts {
		if host, _, err := net.SplitHostPort(h); err == nil {
			h = host
		}
		if glob(strings.ToLower(h), name) {
			return true
		}
	}
	return false
}

// glob matches a whole name; * stands for any characters.
func glob(pattern, s string) bool {
	head, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	if !strings.HasPrefix(s, head) {
		return false
	}
	s = s[len(head):]
	for {
		part, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(s, part)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], more
	}
}

// Connection is one that a sandbox has opened and begun to speak on.
type Connection struct {
	Sandbox sandbox.ID
	Host    string // that its first bytes name, or ""
	Addr    netip.AddrPort
	TLS     bool // they are a ClientHello
	HTTP    bool // they are a request in plain text

	// Pass copies bytes both ways until both have ended.
	Pass func(guest, up net.Conn)
}

// Divert serves a connection if workerd wants it. Otherwise it has read nothing of
// guest. An error refuses the connection.
func (e *Egress) Divert(ctx context.Context, c Connection, guest net.Conn) (taken bool, err error) {
	r, ok := e.of(c.Sandbox)
	switch {
	case !ok:
		return false, sandbox.Errorf("divert", sandbox.Unavailable, "nobody decides over its container's connections now")
	case r.Port == 0 && r.Internet:
		return false, nil
	case r.Port == 0:
		return false, noInternet()
	}
	up, status, err := ask(ctx, r.Port, &c)
	if err != nil {
		return false, err
	}
	defer up.Close()
	defer context.AfterFunc(ctx, func() { up.Close() })()
	switch {
	case status == http.StatusAccepted && r.Internet:
		return false, nil
	case status == http.StatusAccepted:
		return false, noInternet()
	case status != http.StatusOK:
		return false, sandbox.Errorf("divert", sandbox.Forbidden, "workerd answers %d", status)
	}
	if c.TLS {
		host := c.Host
		if host == "" {
			host = c.Addr.Addr().String()
		}
		plain, err := e.authority.Terminate(ctx, c.Sandbox, host, guest)
		if err != nil {
			return true, err
		}
		guest = plain
	}
	c.Pass(guest, up)
	return true, nil
}

func noInternet() error {
	return sandbox.Errorf("divert", sandbox.Forbidden, "no handler takes it, and the container may not reach the internet")
}

// ask tells workerd of a connection. Ok means that it takes it, Accepted that it
// does not want it.
func ask(ctx context.Context, port int, c *Connection) (up net.Conn, status int, err error) {
	const op = "ask workerd"
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var d net.Dialer
	raw, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, 0, sandbox.Errorf(op, sandbox.Unavailable, "%w", err)
	}
	defer func() {
		if err != nil {
			raw.Close()
		}
	}()
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if strings.ContainsFunc(c.Host, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, 0, sandbox.Errorf(op, sandbox.Invalid, "%.80q is no host", c.Host)
	}
	to := c.Addr.String()
	request := fmt.Sprintf("CONNECT %s HTTP/1.1\r\nHost: %s\r\n", to, to)
	switch {
	case c.Host != "" && c.TLS:
		request += "X-Tls-Sni: " + c.Host + "\r\n"
	case c.Host != "" && c.HTTP:
		request += "X-Hostname: " + c.Host + "\r\n"
	}
	if _, err := io.WriteString(raw, request+"\r\n"); err != nil {
		return nil, 0, sandbox.Errorf(op, sandbox.Unavailable, "%w", err)
	}
	in := bufio.NewReader(raw)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, 0, sandbox.Errorf(op, sandbox.Unavailable, "%w", err)
	}
	if !stop() {
		return nil, 0, sandbox.Errorf(op, sandbox.Timeout, "it did not answer in %v", answerTime)
	}
	return &early{Conn: raw, r: in}, resp.StatusCode, nil
}
