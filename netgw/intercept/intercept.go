// Package intercept stands between a sandbox and the hosts whose requests a
// policy acts on.
//
// It ends the sandbox's TLS with a certificate that the sandbox trusts, judges
// each request, lets handlers decide, adds the credentials that the sandbox never
// holds, and sends the request on over TLS that was verified for the same name.
// The name that was dialled, the one in the handshake and the one in the request
// must be one; otherwise the request is refused and no credential leaves.
package intercept

import (
	"context"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/berth-dev/berth/handover"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Bounds on what one connection may hold or take.
const (
	handshakeTime = 10 * time.Second // for TLS, either side
	headerTime    = 10 * time.Second // for a request's header, once it has begun
	idleTime      = 5 * time.Minute  // between requests
	answerTime    = 30 * time.Minute // for the header of an answer
	stallTime     = 5 * time.Minute  // for one read of a body before its answer begins, one write to either side
	maxHeader     = 64 << 10         // bytes of a request's header
	maxAnswer     = 256 << 10        // bytes of an answer's header
	maxStreams    = 128              // requests at once on one connection
	maxRequests   = 512              // requests at once of one sandbox
	copyBuffer    = 32 << 10         // bytes
)

// Flow is one connection of a sandbox, whose first bytes have named a host that
// the sandbox's policy looks into.
type Flow struct {
	Sandbox sandbox.ID
	Name    string // of the sandbox, if it has one
	Account string

	Host string         // as the first bytes have it: lower case, without a port
	Addr netip.AddrPort // that the sandbox dialled
	TLS  bool

	// Dial opens a connection to Host: to an address that was judged, and that
	// the name stands for.
	Dial func(ctx context.Context) (net.Conn, error)

	// Policy is the one of this moment.
	Policy func() sandbox.Policy

	// Judge says whether the policy lets a request pass; otherwise why not.
	Judge func(method, host, path string) Judgement

	// Note adds an entry to the audit.
	Note func(sandbox.AuditEntry)
}

// Judgement is what a policy says to a request.
type Judgement struct {
	Allowed bool
	Rule    string // that decided
	Reason  string // of a refusal
}

// secrets opens secrets for the moment of their use.
type secrets interface {
	Get(ctx context.Context, account, name string) (sandbox.Secret, error)
	Use(ctx context.Context, account, name string, f func(sandbox.SecretValue) error) error
}

// grants keeps which sandbox may use which secret.
type grants interface {
	Granted(ctx context.Context, id sandbox.ID, secret string) error
	Grant(ctx context.Context, id sandbox.ID, secrets ...string) error
	List(ctx context.Context, id sandbox.ID) ([]sandbox.Grant, error)
	Revoke(ctx context.Context, id sandbox.ID, secret string) error
	Restore(ctx context.Context, id sandbox.ID, secret string) error
	Inherit(ctx context.Context, parent, child sandbox.ID) error
	Forget(ctx context.Context, id sandbox.ID) error
}

// values keeps the texts that policies set as they stand, in sets of a sandbox.
type values interface {
	Keep(ctx context.Context, id sandbox.ID, set, before string, all []sandbox.RuleValue) error
	Open(ctx context.Context, id sandbox.ID, set string) (map[string]string, error)
	Inherit(ctx context.Context, parent, child sandbox.ID) error
	Prune(ctx context.Context, id sandbox.ID, keep string) error
}

// sealer encrypts what is put on record.
type sealer interface {
	Seal(label string, plain []byte) ([]byte, error)
	Open(label string, sealed []byte) ([]byte, error)
}

// Config is what a Proxy is made of.
type Config struct {
	Secrets secrets
	Grants  grants
	Values  values
	Records record.Store // keeps each sandbox's authority, sealed
	Sealer  sealer

	Roots    *x509.CertPool   // whom servers' certificates are verified with; nil means the system's
	Handlers Handlers         // zero: no rule may name one
	Clock    func() time.Time // nil means time.Now
	Logger   *slog.Logger     // nil means none
}

// Proxy serves the connections that are looked into. All methods may be called
// at once from many goroutines.
type Proxy struct {
	secrets     secrets
	grants      grants
	values      values
	roots       *x509.CertPool
	handlers    *handlers
	authorities *authorities
	server      *http.Server
	queue       *handover.Listener
	now         func() time.Time
	log         *slog.Logger
	buffers     buffers

	mu    sync.Mutex
	boxes map[sandbox.ID]*box
	ended chan struct{} // closed when the server has
}

// New returns a Proxy that serves until Close.
func New(c Config) (*Proxy, error) {
	if c.Secrets == nil || c.Grants == nil || c.Values == nil || c.Records == nil || c.Sealer == nil {
		return nil, sandbox.Errorf("make interception", sandbox.Invalid, "secrets, grants, values, records and a sealer are needed")
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	h, err := newHandlers(c.Handlers, c.Secrets, c.Clock)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		secrets: c.Secrets, grants: c.Grants, values: c.Values, roots: c.Roots, handlers: h, now: c.Clock, log: c.Logger,
		authorities: &authorities{records: c.Records, sealer: c.Sealer, now: c.Clock, all: map[sandbox.ID]*authority{}},
		queue:       handover.New("intercept"), boxes: map[sandbox.ID]*box{}, ended: make(chan struct{}),
	}
	p.server = p.newServer()
	go func() {
		defer close(p.ended)
		p.server.Serve(p.queue) // ends with Close, and with nothing else
	}()
	return p, nil
}

func (p *Proxy) newServer() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Server{
		Handler:           http.HandlerFunc(serveRequest),
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		Protocols:         protocols,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: 1 << 20,
			MaxReceiveBufferPerConnection: 4 << 20, WriteByteTimeout: stallTime},
		ErrorLog:    slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
		ConnContext: connContext,
	}
}

// Close ends every connection and waits for the serving to end.
func (p *Proxy) Close() error {
	err := p.server.Close()
	p.queue.Close()
	<-p.ended
	return err
}

// Check reports what of a policy cannot be done: NotFound for a secret that is
// not there, Invalid for a handler that is not set up, Forbidden for a handler of
// the caller's own where the operator allows none.
func (p *Proxy) Check(ctx context.Context, account string, policy *sandbox.Policy) error {
	const op = "check policy"
	for i := range policy.Inject {
		r := &policy.Inject[i]
		for _, name := range r.Secrets() {
			if _, err := p.secrets.Get(ctx, account, name); err != nil {
				return &sandbox.Error{Op: op, Err: err}
			}
		}
		if r.Handler != nil {
			if err := p.handlers.check(r.Handler); err != nil {
				return &sandbox.Error{Op: op, Err: err}
			}
		}
	}
	return nil
}

// Certificate returns the certificate, as PEM, that a sandbox must trust for what
// is looked into. It is made at the first call and stays the same from then on.
func (p *Proxy) Certificate(ctx context.Context, id sandbox.ID) ([]byte, error) {
	a, err := p.authorities.get(ctx, id)
	if err != nil {
		return nil, &sandbox.Error{Op: "get authority of", ID: id, Err: err}
	}
	return a.pem(), nil
}

// Grant gives a sandbox its right to secrets. What it has, or what was revoked,
// stays as it is.
func (p *Proxy) Grant(ctx context.Context, id sandbox.ID, secrets ...string) error {
	return p.grants.Grant(ctx, id, secrets...)
}

// Grants lists what a sandbox was granted.
func (p *Proxy) Grants(ctx context.Context, id sandbox.ID) ([]sandbox.Grant, error) {
	return p.grants.List(ctx, id)
}

// Revoke takes a secret away from a sandbox, and ends the requests under way that
// it was added to. NotFound: the sandbox was never granted it.
func (p *Proxy) Revoke(ctx context.Context, id sandbox.ID, secret string) error {
	if err := p.grants.Revoke(ctx, id, secret); err != nil {
		return err
	}
	p.cut(id, func(r *request) bool { return r.uses(secret) })
	return nil
}

// Restore gives back what Revoke took.
func (p *Proxy) Restore(ctx context.Context, id sandbox.ID, secret string) error {
	return p.grants.Restore(ctx, id, secret)
}

// Keep puts the values of a sandbox's policy away, in a set of that name. What has
// no text is taken from the set before.
func (p *Proxy) Keep(ctx context.Context, id sandbox.ID, set, before string, all []sandbox.RuleValue) error {
	return p.values.Keep(ctx, id, set, before, all)
}

// Prune removes all sets of values of a sandbox but for the one that its policy
// has; "" removes all.
func (p *Proxy) Prune(ctx context.Context, id sandbox.ID, set string) error {
	return p.values.Prune(ctx, id, set)
}

// Inherit gives a fork grants and values of its own, and an authority of its own,
// whose certificates the processes that it inherited trust too.
func (p *Proxy) Inherit(ctx context.Context, parent, child sandbox.ID) error {
	if err := p.grants.Inherit(ctx, parent, child); err != nil {
		return err
	}
	if err := p.values.Inherit(ctx, parent, child); err != nil {
		return err
	}
	return p.Descend(ctx, parent, child)
}

// Descend gives a sandbox an authority of its own whose certificates also please
// the processes of another, from whose state it is made; no grants. If the other
// has none, or is no more, neither has the sandbox.
func (p *Proxy) Descend(ctx context.Context, from, to sandbox.ID) error {
	if err := p.authorities.inherit(ctx, from, to); err != nil {
		return &sandbox.Error{Op: "inherit authority of", ID: from, Err: err}
	}
	return nil
}

// Forget removes what is kept of a sandbox that is no more. Doing so twice is no
// error.
func (p *Proxy) Forget(ctx context.Context, id sandbox.ID) error {
	p.cut(id, func(*request) bool { return true })
	p.mu.Lock()
	delete(p.boxes, id)
	p.mu.Unlock()
	if err := p.grants.Forget(ctx, id); err != nil {
		return err
	}
	if err := p.values.Prune(ctx, id, ""); err != nil {
		return err
	}
	return p.authorities.forget(ctx, id)
}

// cut ends requests of a sandbox.
func (p *Proxy) cut(id sandbox.ID, which func(*request) bool) {
	p.mu.Lock()
	b := p.boxes[id]
	p.mu.Unlock()
	if b != nil {
		b.cancel(which)
	}
}

// box is what is shared by the connections of one sandbox.
type box struct {
	sessions tlsSessions

	mu       sync.Mutex
	requests map[*request]struct{}
}

func (p *Proxy) box(id sandbox.ID) *box {
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.boxes[id]
	if b == nil {
		b = &box{requests: map[*request]struct{}{}, sessions: newTLSSessions()}
		p.boxes[id] = b
	}
	return b
}

// enter counts a request; false means that there are too many.
func (b *box) enter(r *request) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.requests) >= maxRequests {
		return false
	}
	b.requests[r] = struct{}{}
	return true
}

func (b *box) leave(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.requests, r)
}

// cancel ends the requests that which picks.
func (b *box) cancel(which func(*request) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.requests {
		if which(r) {
			r.end()
		}
	}
}
