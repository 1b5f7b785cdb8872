package kernel

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// spare is a kernel that was started ahead, for whichever context fits it first.
type spare struct {
	spec    Spec
	options Options
	drop    context.CancelFunc // ends it, unless somebody has it
	ready   chan struct{}      // closed once it has started, or has not
	taken   chan struct{}      // closed when somebody has it

	k   *interpreter // set before ready is closed
	err error        // likewise

	mu    sync.Mutex
	ports []uint16
}

// Prepare starts a kernel ahead, and returns once it answers. The first context of its
// language, user and kernelspec takes it over, with its own folder and variables. There
// is one at a time; a set that has it, or has contexts, is left as it is.
func (s *Set) Prepare(ctx context.Context, o Options) error {
	spec, err := find(Specs(o.Folders), o.Language)
	if err != nil {
		return err
	}
	p := s.begin(spec, o)
	if p == nil {
		return nil
	}
	select {
	case <-p.ready:
		return p.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begin starts the spare kernel; nil: none is wanted.
func (s *Set) begin(spec Spec, o Options) *spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.spare != nil || len(s.contexts) > 0 || movers[spec.Language] == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background()) // ended by drop
	p := &spare{spec: spec, options: o, drop: cancel, ready: make(chan struct{}), taken: make(chan struct{})}
	s.spare = p
	s.wg.Go(func() {
		defer cancel()
		s.keep(ctx, p)
	})
	return p
}

// keep starts a spare kernel and sees to its end, unless somebody takes it first.
func (s *Set) keep(ctx context.Context, p *spare) {
	p.k, p.err = launch(ctx, p.spec, p.options.Starter, p.claim)
	close(p.ready)
	if p.err == nil {
		select {
		case <-p.taken:
		case <-ctx.Done():
		case <-p.k.process.Done():
		}
	}
	s.mu.Lock()
	if s.spare == p {
		s.spare = nil
	}
	s.mu.Unlock()
	select {
	case <-p.taken: // whoever has it ends it
	default:
		if p.err == nil {
			p.k.close()
		}
	}
}

// take gives the spare kernel away if it fits what a context is to be. One that fits no
// context of its language is of no use, and ends.
func (s *Set) take(spec Spec, o Options) *spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.spare
	if p == nil || p.spec.Language != spec.Language {
		return nil
	}
	s.spare = nil
	if !p.fits(spec, o) {
		p.drop()
		return nil
	}
	close(p.taken)
	return p
}

func (p *spare) claim(ports []uint16) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports = append(p.ports, ports...)
}

func (p *spare) listens() []uint16 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.ports)
}

// fits reports whether a context could not tell the kernel from one of its own.
func (p *spare) fits(spec Spec, o Options) bool {
	if o.User != p.options.User || !reflect.DeepEqual(spec, p.spec) {
		return false
	}
	for name := range p.changes(o.Env) {
		if readAtStart(name) {
			return false
		}
	}
	return true
}

// changes are the variables that differ in a context: their values there, nil for those
// that are not set.
func (p *spare) changes(env map[string]string) map[string]*string {
	out := map[string]*string{}
	for name, value := range env {
		if old, was := p.options.Env[name]; !was || old != value {
			out[name] = &value
		}
	}
	for name := range p.options.Env {
		if _, stays := env[name]; stays {
			continue
		}
		out[name] = nil
		if value, ok := p.spec.Env[name]; ok {
			out[name] = &value
		}
	}
	return out
}

// readAtStart reports whether a kernel or its libraries look at a variable only when
// they start, so that it comes too late afterwards.
func readAtStart(name string) bool {
	switch name {
	case "HOME", "LANG", "LANGUAGE", "LOGNAME", "NO_COLOR", "SHELL", "TERM", "TMPDIR", "TZ", "USER":
		return true
	}
	for _, family := range []string{"GLIBC_", "IPYTHON", "JUPYTER", "LC_", "LD_", "MALLOC_", "MPL", "OPENSSL_", "PYDEVD", "PYTHON", "XDG_", "ZMQ_"} {
		if strings.HasPrefix(name, family) {
			return true
		}
	}
	return false
}

// movers give the code that makes a kernel at rest one that has just started in a
// folder, with random numbers of its own: forks of a sandbox have one spare each, which
// began as one.
var movers = map[string]func(cwd string) string{
	"python": func(cwd string) string {
		return `__import__("os").chdir(` + quote(cwd) + ")\n" +
			`get_ipython().user_ns.get("_dh", [])[:] = [__import__("os").getcwd()]` + "\n" +
			`__import__("random").seed()`
	},
}

// adopt gives the context the kernel that was started ahead; nil: none fits, or it is
// of no use.
func (c *Context) adopt(ctx context.Context) *interpreter {
	p := c.spare(c.Spec, c.Options)
	if p == nil {
		return nil
	}
	select {
	case <-p.ready:
	case <-ctx.Done():
		p.drop()
		<-p.ready // soon: its start was broken off
	}
	if p.err != nil {
		return nil
	}
	if ctx.Err() != nil || !p.k.quietly(p.moving(c.Options)) {
		p.k.close()
		return nil
	}
	c.claim(p.listens())
	return p.k
}

// moving is the code that makes the kernel one of a context.
func (p *spare) moving(o Options) string {
	lines := []string{movers[p.spec.Language](o.Cwd)}
	changes, set := p.changes(o.Env), setters[p.spec.Language]
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		lines = append(lines, set(name, changes[name]))
	}
	return strings.Join(lines, "\n")
}
