package docker

import (
	"bufio"
	"context"
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

// serverPort is the port on which the vendor's program would listen.
const serverPort = 3000

// dialTime bounds the way to a port of a sandbox, its waking included.
const dialTime = 90 * time.Second

// serve answers what is sent to a sidecar's port.
func (s *sidecar) serve(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	err := s.answer(w, r)
	s.d.log.Debug("sidecar call", "method", r.Method, "uri", r.RequestURI, "to", r.Header.Get("X-Dst-Addr"), "took", time.Since(begin), "error", err)
	if err != nil {
		s.d.render(w, r, err)
	}
}

func (s *sidecar) answer(w http.ResponseWriter, r *http.Request) error {
	if !ownName(r.Host) {
		return &sandbox.Error{Op: "check host", Kind: sandbox.Forbidden, Err: errNotServed, Hint: "a page of another site may not use this port"}
	}
	switch {
	case r.Method == http.MethodConnect:
		return s.lead(w, r)
	case r.Method == http.MethodPut && r.URL.Path == "/egress":
		var b egressBody
		if err := readBody(w, r, &b); err != nil {
			return err
		}
		if err := s.setRoute(r.Context(), &b); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	case r.Method == http.MethodGet && r.URL.Path == "/ca":
		pem, err := s.certificate(r.Context())
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, err = w.Write(pem)
		return err
	}
	writeJSON(w, http.StatusNotFound, map[string]string{"message": "page not found"})
	return nil
}

// ownName reports whether a host is an address or localhost: names of others may be
// made to point here.
func ownName(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}

// lead opens a way to a port of the sandbox. 400 says that nothing listens there:
// clients ask again.
func (s *sidecar) lead(w http.ResponseWriter, r *http.Request) error {
	port, err := target(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	name, up := s.container, s.phase == running
	s.mu.Unlock()
	if name == "" || !up {
		return notListening(port)
	}
	c, err := s.d.load(r.Context(), name)
	if err != nil || c.Phase != running {
		return notListening(port)
	}
	if c.Server && port == serverPort {
		client, err := takeOver(w)
		if err != nil {
			return err
		}
		in := s.d.enter(client, c.box.ID)
		// Whoever ends the container closes what has entered by then.
		if c, err := s.d.load(r.Context(), name); err != nil || c.Phase != running || !s.d.conns.Push(in) {
			return in.Close()
		}
		return nil
	}
	return s.d.carry(w, r, c, port)
}

// carry passes bytes between a client and a port of a container.
func (d *Dialect) carry(w http.ResponseWriter, r *http.Request, c *container, port int) error {
	ctx, cancel := context.WithTimeout(r.Context(), dialTime)
	to, err := d.engine.Dial(ctx, string(c.box.ID), port)
	cancel()
	if err != nil {
		if sandbox.KindOf(err) == sandbox.Unavailable || sandbox.KindOf(err) == sandbox.Invalid {
			return notListening(port)
		}
		return err
	}
	client, err := takeOver(w)
	if err != nil {
		to.Close()
		return err
	}
	d.splice(client, to)
	return nil
}

func notListening(port int) error {
	return &sandbox.Error{Op: "connect to port " + strconv.Itoa(port), Kind: sandbox.Invalid, Err: sandbox.ErrNotListening}
}

// target is the port that a request leads to: of X-Dst-Addr, or of its own address.
func target(r *http.Request) (int, error) {
	for _, at := range []string{r.Header.Get("X-Dst-Addr"), r.Host} {
		_, p, err := net.SplitHostPort(at)
		if err != nil {
			continue
		}
		if n, err := strconv.Atoi(p); err == nil && n > 0 && n < 65536 {
			return n, nil
		}
	}
	return 0, invalid("%.80q names no port", r.Host)
}

// takeOver accepts a CONNECT and takes its connection from the server.
func takeOver(w http.ResponseWriter) (net.Conn, error) {
	raw, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, sandbox.Errorf("take the connection over", sandbox.Internal, "%w", err)
	}
	_ = raw.SetDeadline(time.Time{})
	c := &early{Conn: raw, r: buffered.Reader}
	if _, err := io.WriteString(raw, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		raw.Close()
		return nil, http.ErrAbortHandler // who has asked is gone
	}
	return c, nil
}

// early is a connection of which something was read before.
type early struct {
	net.Conn
	r *bufio.Reader
}

func (c *early) Read(b []byte) (int, error) { return c.r.Read(b) }

func (c *early) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// splice passes bytes both ways until both have ended, and closes both ends.
func (d *Dialect) splice(a, b net.Conn) {
	stop := context.AfterFunc(d.ctx, func() { a.Close(); b.Close() })
	defer stop()
	var way sync.WaitGroup
	copyTo := func(to, from net.Conn) {
		if _, err := io.Copy(to, from); err != nil {
			a.Close()
			b.Close()
			return
		}
		if half, ok := to.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // who reads there learns of the end
		}
	}
	way.Go(func() { copyTo(b, a) })
	copyTo(a, b)
	way.Wait()
	a.Close()
	b.Close()
}

// inside is a connection to the vendor's program of a sandbox.
type inside struct {
	net.Conn
	d   *Dialect
	box sandbox.ID
}

// enter keeps a connection for as long as it is open.
func (d *Dialect) enter(c net.Conn, box sandbox.ID) *inside {
	in := &inside{Conn: c, d: d, box: box}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.insides[box] == nil {
		d.insides[box] = map[*inside]struct{}{}
	}
	d.insides[box][in] = struct{}{}
	return in
}

// Close closes the connection.
func (c *inside) Close() error {
	c.d.mu.Lock()
	delete(c.d.insides[c.box], c)
	if len(c.d.insides[c.box]) == 0 {
		delete(c.d.insides, c.box)
	}
	c.d.mu.Unlock()
	return c.Conn.Close()
}

// cutInside ends the connections to the vendor's program of a container that ends:
// what goes on there would wake its sandbox.
func (d *Dialect) cutInside(box sandbox.ID) {
	d.mu.Lock()
	all := make([]*inside, 0, len(d.insides[box]))
	for in := range d.insides[box] {
		all = append(all, in)
	}
	d.mu.Unlock()
	for _, in := range all {
		_ = in.Close() // its other end has nothing left to say
	}
}

type insideKey struct{}

// serveInside answers for the vendor's program.
func (d *Dialect) serveInside(w http.ResponseWriter, r *http.Request) {
	in, ok := r.Context().Value(insideKey{}).(*inside)
	if !ok {
		http.NotFound(w, r)
		return
	}
	begin := time.Now()
	d.server(in.box).ServeHTTP(w, r)
	d.log.Debug("call inside", "sandbox", in.box, "method", r.Method, "path", r.URL.Path, "took", time.Since(begin))
}
