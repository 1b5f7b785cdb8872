package netgw

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Config is what a Gateway is made of. Every field may be left out.
type Config struct {
	// Allow opens networks that no policy could open: private ones, or the
	// host's own. They are then like public ones to every sandbox. Deny closes
	// others for good, and wins.
	Allow, Deny []netip.Prefix

	// Resolvers are asked for names, in this order; none means those of the
	// host's /etc/resolv.conf.
	Resolvers []netip.AddrPort

	// Dial opens connections to the outside, "tcp" or "udp", to an address that
	// has been judged; nil means the host's own network.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Audit is given every entry. It must not block.
	Audit auditor

	// Intercept takes over the flows whose requests are to be looked at. Without
	// one, policies that need it are refused.
	Intercept interceptor

	// Diverters decide, by the names that policies call them, over connections
	// before the rules do.
	Diverters map[string]Diverter

	Now   func() time.Time // nil means time.Now
	Flows int              // open connections of one sandbox; 0 means 1,024
	Total int              // open connections of all sandboxes; 0 means 16,384
}

// auditor keeps what the gateway tells.
type auditor interface {
	Note(sandbox.AuditEntry)
}

// Gateway judges and carries all traffic of the sandboxes of one server. All
// methods may be called at once from many goroutines.
type Gateway struct {
	allow, deny []netip.Prefix
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	audit       auditor
	intercept   interceptor
	diverters   map[string]Diverter
	now         func() time.Time
	own         ownAddresses
	resolver    *resolver
	room        room
	count       counters

	mu      sync.Mutex
	tenants map[sandbox.ID]*tenant
}

// dialTime bounds the dialling of an upstream.
const dialTime = 15 * time.Second

// New returns a Gateway. It starts nothing.
func New(c Config) (*Gateway, error) {
	g := &Gateway{
		allow: c.Allow, deny: c.Deny, dial: c.Dial, audit: c.Audit, intercept: c.Intercept, diverters: c.Diverters, now: c.Now,
		tenants: map[sandbox.ID]*tenant{},
	}
	if g.dial == nil {
		g.dial = (&net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}).DialContext
	}
	if g.audit == nil {
		g.audit = unheard{}
	}
	if g.now == nil {
		g.now = time.Now
	}
	if c.Flows == 0 {
		c.Flows = 1024
	}
	if c.Total == 0 {
		c.Total = 16 << 10
	}
	if c.Flows < 0 || c.Total < c.Flows {
		return nil, sandbox.Errorf("make gateway", sandbox.Invalid, "flows is %d, total %d", c.Flows, c.Total)
	}
	g.room = room{one: c.Flows, all: c.Total}
	g.own.now = g.now
	var err error
	g.resolver, err = newResolver(c.Resolvers, g.dial, g.now)
	return g, err
}

// unheard is an auditor for a gateway that needs none.
type unheard struct{}

func (unheard) Note(sandbox.AuditEntry) {}

// tenant is what the gateway knows of one sandbox. It outlives its links: a
// paused sandbox has none.
type tenant struct {
	id sandbox.ID

	mu      sync.Mutex
	name    string
	account string
	rules   *rules // nil: nothing passes
	flows   map[*flow]struct{}
	learned *learned

	questions limiter
	refusals  limiter
	traffic   traffic
}

// tenant returns what is known of a sandbox, made if need be.
func (g *Gateway) tenant(id sandbox.ID) *tenant {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := g.tenants[id]
	if t == nil {
		t = newTenant(id, g.now)
		g.tenants[id] = t
	}
	return t
}

// leave drops what is known of a sandbox that never got a policy: a machine that
// waited for one in vain.
func (g *Gateway) leave(t *tenant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rules == nil && g.tenants[t.id] == t {
		delete(g.tenants, t.id)
	}
}

// Check reports whether a policy can be enforced here. Forbidden: it names what
// the operator has closed. Unsupported: it needs requests to be looked at.
func (g *Gateway) Check(_ context.Context, s *sandbox.Sandbox) error {
	_, err := g.compile(s)
	return err
}

// Apply puts a sandbox's policy into force: for what it opens from now on, and
// for what is open, of which the policy's refusals are cut before Apply returns.
// After an error the policy from before is in force; without one nothing passes.
func (g *Gateway) Apply(_ context.Context, s *sandbox.Sandbox) error {
	r, err := g.compile(s)
	if err != nil {
		return err
	}
	t := g.tenant(s.ID)
	t.mu.Lock()
	before := t.rules
	t.name, t.account, t.rules = s.Name, s.Account, r
	var open []*flow
	for f := range t.flows {
		open = append(open, f)
	}
	t.mu.Unlock()
	for _, f := range open {
		f.rejudge()
	}
	if before == nil || !reflect.DeepEqual(before.policy, r.policy) {
		g.audit.Note(sandbox.AuditEntry{Time: g.now(), Sandbox: s.ID, Account: s.Account, Kind: sandbox.AuditPolicy,
			Reason: fmt.Sprintf("profile %s, %d allow, %d deny, %d inject", r.policy.Profile, len(r.policy.Allow), len(r.policy.Deny), len(r.policy.Inject))})
	}
	return nil
}

// Forget ends what is open of a sandbox and drops its policy: nothing passes
// until the next Apply.
func (g *Gateway) Forget(id sandbox.ID) {
	g.mu.Lock()
	t := g.tenants[id]
	delete(g.tenants, id)
	g.mu.Unlock()
	if t == nil {
		return
	}
	t.mu.Lock()
	t.rules = nil
	open := make([]*flow, 0, len(t.flows))
	for f := range t.flows {
		open = append(open, f)
	}
	t.mu.Unlock()
	for _, f := range open {
		f.cut("the sandbox is gone")
	}
}

// Traffic is what has passed for a sandbox since this process first knew it, or
// since it was forgotten.
func (g *Gateway) Traffic(id sandbox.ID) sandbox.Traffic {
	g.mu.Lock()
	t := g.tenants[id]
	g.mu.Unlock()
	if t == nil {
		return sandbox.Traffic{}
	}
	return t.traffic.read()
}

// EgressBytes is what a sandbox has sent since this process first knew it.
func (g *Gateway) EgressBytes(id sandbox.ID) (int64, bool) {
	g.mu.Lock()
	t := g.tenants[id]
	g.mu.Unlock()
	if t == nil {
		return 0, false
	}
	return t.traffic.sent.Load(), true
}

// Counts is what the gateway has done since it was made.
func (g *Gateway) Counts() Counts { return g.count.read() }
