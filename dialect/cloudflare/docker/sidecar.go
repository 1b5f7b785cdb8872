package docker

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/berth-dev/berth/sandbox"
)

// sidecarSuffix is what the name of a sidecar adds to its container's.
const sidecarSuffix = "-proxy"

// ingressPort is the port that a sidecar publishes.
const ingressPort = "39001/tcp"

// maxIngress bounds the connections to one sidecar.
const maxIngress = 1024

// sidecar is what workerd takes for the container beside a container: a port of the
// loopback that leads into the sandbox, and what it was told of the traffic out of
// it. There is no sandbox behind it.
type sidecar struct {
	d    *Dialect
	name string
	img  string
	tags map[string]string // its labels
	made time.Time

	listener net.Listener
	server   *http.Server

	mu        sync.Mutex
	phase     phase
	route     Route
	container string     // that it serves; "" until one is created
	box       sandbox.ID // its sandbox
	authority sandbox.ID // under which it has an authority of its own, until then
}

// isSidecar reports whether a container is to be one of those.
func isSidecar(b *createBody) bool {
	return slices.Contains(b.Cmd, "--http-ingress-address") || slices.Contains(b.Cmd, "--http-egress-port")
}

// createSidecar makes a sidecar, in the place of one that served a container which
// is no more.
func (d *Dialect) createSidecar(ctx context.Context, name string, b *createBody) (id string, err error) {
	if d.sidecar(name) != nil {
		return "", taken(name)
	}
	if _, err := d.load(ctx, name); sandbox.KindOf(err) != sandbox.NotFound {
		if err == nil {
			err = taken(name)
		}
		return "", err
	}
	s, err := d.newSidecar(ctx, proxy{Name: name, Image: b.Image, Labels: b.Labels, Egress: routeOf(b.Cmd)})
	if err != nil {
		return "", err
	}
	return hexID("sidecar", s.name), nil
}

// newSidecar listens, on the port that is asked for if it is free.
func (d *Dialect) newSidecar(ctx context.Context, p proxy) (*sidecar, error) {
	s := &sidecar{d: d, name: p.Name, img: p.Image, tags: p.Labels, made: time.Now(), phase: created, route: p.Egress}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port)))
	if err != nil && p.Port != 0 {
		d.log.Warn("a sidecar's port was taken", "sidecar", p.Name, "port", p.Port, "error", err)
		l, err = lc.Listen(ctx, "tcp4", "127.0.0.1:0")
	}
	if err != nil {
		return nil, &sandbox.Error{Op: "listen for a container", Kind: sandbox.Unavailable, Err: err}
	}
	s.listener = l
	s.server = &http.Server{Handler: http.HandlerFunc(s.serve), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, BaseContext: func(net.Listener) context.Context { return d.ctx }}
	d.mu.Lock()
	if d.closed || d.sidecars[s.name] != nil {
		d.mu.Unlock()
		l.Close()
		return nil, taken(s.name)
	}
	d.sidecars[s.name] = s
	d.mu.Unlock()
	d.task(func() { _ = s.server.Serve(netutil.LimitListener(l, maxIngress)) }) // it ends with close
	return s, nil
}

// sidecar returns a sidecar, or nil.
func (d *Dialect) sidecar(name string) *sidecar {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sidecars[name]
}

// dropSidecar ends a sidecar. Its container, if there is one, is not reached and
// reaches nothing until there is another.
func (d *Dialect) dropSidecar(s *sidecar) {
	d.mu.Lock()
	if d.sidecars[s.name] == s {
		delete(d.sidecars, s.name)
	}
	d.mu.Unlock()
	s.close()
	s.mu.Lock()
	box, own := s.box, s.authority
	s.mu.Unlock()
	if d.egress != nil && box != "" {
		d.egress.Unset(box)
	}
	if d.egress != nil && own != "" {
		if err := d.egress.forget(d.ctx, own); err != nil {
			d.log.Error("forget a sidecar's authority", "error", err)
		}
	}
	d.news.post(s.name)
}

func (s *sidecar) close() { _ = s.server.Close() } // its listener too

func (s *sidecar) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

func (s *sidecar) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == running
}

// begin starts the sidecar and returns the call's status.
func (s *sidecar) begin() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == running {
		return http.StatusNotModified
	}
	s.phase = running
	return http.StatusNoContent
}

// halt stops the sidecar; false if it did not run.
func (s *sidecar) halt() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.phase == running
	s.phase = exited
	return was
}

// kept is what stands with the sandbox that the sidecar serves.
func (s *sidecar) kept() *proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &proxy{Name: s.name, Image: s.img, Labels: s.tags, Port: s.port(), Egress: s.route}
}

func (s *sidecar) describe() *inspectBody {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &inspectBody{ID: hexID("sidecar", s.name), Name: "/" + s.name, Created: moment(s.made), Mounts: []mount{}}
	b.State = stateBody{Status: string(s.phase), Running: s.phase == running, StartedAt: moment(s.made), FinishedAt: moment(time.Time{})}
	if s.phase == running {
		b.State.Pid = 1
	}
	b.Config.Image, b.Config.Labels = s.img, orNone(s.tags)
	b.NetworkSettings.Ports = map[string][]portBody{ingressPort: {{HostIp: "127.0.0.1", HostPort: strconv.Itoa(s.port())}}}
	return b
}

// connect leads a sidecar to the sandbox of a new container.
func (d *Dialect) connect(ctx context.Context, c *container) error {
	d.mu.Lock()
	d.known[c.box.ID] = c.Name
	d.mu.Unlock()
	if c.Proxy == nil {
		return nil
	}
	s := d.sidecar(c.Proxy.Name)
	if s == nil {
		return noContainer(c.Proxy.Name)
	}
	s.mu.Lock()
	s.container, s.box = c.Name, c.box.ID
	own, route := s.authority, s.route
	s.authority = ""
	s.mu.Unlock()
	if d.egress == nil {
		return nil
	}
	if own != "" { // what was told of it before must lead to the sandbox's own
		if err := d.egress.bequeath(ctx, own, c.box.ID); err != nil {
			return err
		}
	}
	d.egress.Set(c.box.ID, route)
	return nil
}

// disconnect forgets a sandbox that is no more.
func (d *Dialect) disconnect(id sandbox.ID) {
	d.mu.Lock()
	delete(d.known, id)
	d.mu.Unlock()
	for _, s := range d.allSidecars() {
		s.mu.Lock()
		if s.box == id {
			s.container, s.box = "", ""
		}
		s.mu.Unlock()
	}
	if d.egress != nil {
		d.egress.Unset(id)
	}
}

// reconnect is connect for a container of an earlier server.
func (d *Dialect) reconnect(ctx context.Context, c *container) error {
	if c.Proxy == nil {
		return d.connect(ctx, c)
	}
	s, err := d.newSidecar(ctx, *c.Proxy)
	if err != nil {
		return err
	}
	s.begin()
	if err := d.connect(ctx, c); err != nil {
		return err
	}
	if kept := s.kept(); kept.Port != c.Proxy.Port {
		c.Proxy = kept
		return d.save(ctx, c)
	}
	return nil
}

// routeOf reads the flags that a sidecar is started with.
func routeOf(args []string) Route {
	r := Route{Internet: true}
	for i, a := range args {
		name, value, ok := strings.Cut(a, "=")
		if !ok && i+1 < len(args) {
			value = args[i+1]
		}
		if name != "--http-egress-port" {
			continue
		}
		if n, err := strconv.Atoi(value); err == nil && n > 0 && n < 65536 {
			r.Port = n
		}
	}
	return r
}

// setRoute changes where the traffic goes, and writes it down with the container. Changes
// come in turn: each says a part of what holds after it.
func (s *sidecar) setRoute(ctx context.Context, b *egressBody) error {
	turn, err := s.d.names.lock(ctx, s.name)
	if err != nil {
		return err
	}
	defer turn()
	s.mu.Lock()
	r := s.route
	name := s.container
	s.mu.Unlock()
	if err := r.change(b); err != nil {
		return err
	}
	if name != "" {
		unlock, err := s.d.names.lock(ctx, name)
		if err != nil {
			return err
		}
		defer unlock()
		c, err := s.d.load(ctx, name)
		switch {
		case sandbox.KindOf(err) == sandbox.NotFound:
		case err != nil:
			return err
		case c.Proxy != nil && c.Proxy.Name == s.name:
			c.Proxy.Egress = r
			if err := s.d.save(ctx, c); err != nil {
				return err
			}
		}
	}
	s.mu.Lock()
	s.route = r
	box := s.box
	s.mu.Unlock()
	if s.d.egress != nil && box != "" {
		s.d.egress.Set(box, r)
	}
	return nil
}

// change takes over what a request says.
func (r *Route) change(b *egressBody) error {
	if b.Port != nil {
		if *b.Port < 1 || *b.Port > 65535 {
			return invalid("port is %d", *b.Port)
		}
		r.Port = *b.Port
	}
	if b.DNS != nil {
		if len(b.DNS.AllowHostnames) > maxHosts {
			return invalid("%d hosts, at most %d are taken", len(b.DNS.AllowHostnames), maxHosts)
		}
		for _, h := range b.DNS.AllowHostnames {
			if len(h) > 255 {
				return invalid("%.80q is no host", h)
			}
		}
		r.Hosts = slices.Clone(b.DNS.AllowHostnames)
	}
	if b.Internet != nil && b.Internet.Enabled != nil {
		r.Internet = *b.Internet.Enabled
	}
	return nil
}

// certificate is what the container must trust, as PEM.
func (s *sidecar) certificate(ctx context.Context) ([]byte, error) {
	if s.d.egress == nil {
		return nil, unsupported("make an authority", "this server looks into no traffic")
	}
	s.mu.Lock()
	id := s.box
	s.mu.Unlock()
	if id == "" { // its container goes on with the sandbox that waits for it
		c, err := s.d.find(ctx, strings.TrimSuffix(s.name, sidecarSuffix))
		if err == nil && !s.d.forget {
			id = c.box.ID
		} else if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return nil, err
		}
	}
	if id == "" {
		s.mu.Lock()
		if s.authority == "" {
			s.authority = sandbox.NewID()
		}
		id = s.authority
		s.mu.Unlock()
	}
	pem, err := s.d.egress.authority.Certificate(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("make an authority: %w", err)
	}
	return pem, nil
}
