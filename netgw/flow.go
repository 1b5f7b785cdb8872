package netgw

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Refusals of one sandbox are written one by one up to this rate, and counted
// beyond it: a flood of them must not push everything else out of the audit.
const (
	refusalRate  = 20
	refusalBurst = 200
)

func newTenant(id sandbox.ID, now func() time.Time) *tenant {
	return &tenant{
		id: id, flows: map[*flow]struct{}{}, learned: &learned{now: now, all: map[netip.Addr]*known{}},
		questions: limiter{rate: questionRate, burst: questionBurst, now: now},
		refusals:  limiter{rate: refusalRate, burst: refusalBurst, now: now},
	}
}

// errCut is why a flow is ended from here.
type errCut struct{ reason string }

func (e errCut) Error() string { return e.reason }

// flow is one connection, or one exchange of datagrams, that passes or is about
// to.
type flow struct {
	g     *Gateway
	t     *tenant
	udp   bool
	to    netip.AddrPort
	names []string // by which the sandbox knew the address when it dialled
	began time.Time

	ctx context.Context // ends when the flow must
	end context.CancelCauseFunc

	sent, received atomic.Int64

	mu       sync.Mutex
	rule     string
	host     string // that the client has shown
	held     bool   // its client's first bytes wait to be judged
	peeked   bool
	looked   bool // its requests are looked at
	diverted bool // a diverter decides, or has taken it over: the rules have no say
	spare    net.Conn
	verdict  sandbox.Verdict
	reason   string
}

// begin judges an attempt and gives it a place. A refusal is on the audit when
// it returns nil.
func (g *Gateway) begin(ctx context.Context, t *tenant, udp bool, to netip.AddrPort) (*flow, decision) {
	f := &flow{g: g, t: t, udp: udp, to: to, began: g.now(), verdict: sandbox.VerdictAllowed}
	f.ctx, f.end = context.WithCancelCause(ctx)
	t.mu.Lock()
	r, has := t.rules, len(t.flows)
	f.names = t.learned.names(to.Addr())
	t.flows[f] = struct{}{} // from here on a change of the policy finds it
	t.mu.Unlock()

	d := g.judge(r, udp, to, f.names)
	if d.allowed && !g.room.enter(has) {
		g.count.full.Add(1)
		d = refuse("", "too many connections are open")
	}
	if !d.allowed {
		f.drop()
		f.refused(d.rule, d.reason)
		return nil, d
	}
	f.mu.Lock()
	f.rule, f.held = d.rule, d.peek
	f.mu.Unlock()
	g.count.open.Add(1)
	return f, d
}

// judge says what becomes of a connection to an address.
func (g *Gateway) judge(r *rules, udp bool, to netip.AddrPort, names []string) decision {
	if why := g.closed(to.Addr()); why != "" {
		return refuse("", "closed to all sandboxes: "+why)
	}
	if r == nil {
		return refuse("", noPolicy)
	}
	return r.connection(udp, to, names)
}

// drop takes the flow out of its sandbox's list.
func (f *flow) drop() {
	f.end(nil)
	f.t.mu.Lock()
	delete(f.t.flows, f)
	f.t.mu.Unlock()
}

// finish gives the flow's place back and writes it down.
func (f *flow) finish() {
	f.mu.Lock()
	if cut := (errCut{}); errors.As(context.Cause(f.ctx), &cut) && f.reason == "" {
		f.reason = cut.reason
	}
	spare := f.spare
	f.spare = nil
	e := f.entry(sandbox.AuditConnection)
	e.Verdict, e.Rule, e.Reason = f.verdict, f.rule, f.reason
	f.mu.Unlock()
	if spare != nil {
		spare.Close()
	}
	f.drop()
	f.g.room.leave()
	f.g.count.open.Add(-1)
	switch e.Verdict {
	case sandbox.VerdictAllowed:
		f.g.count.allowed.Add(1)
	case sandbox.VerdictFailed:
		f.g.count.failed.Add(1)
	case sandbox.VerdictDenied:
		f.refused(e.Rule, e.Reason)
		return
	}
	e.Sent, e.Received = f.sent.Load(), f.received.Load()
	e.DurationMS = f.g.now().Sub(f.began).Milliseconds()
	f.g.audit.Note(e)
}

// entry is the beginning of an entry about the flow. The caller holds f.mu, or is
// the only one to know f.
func (f *flow) entry(kind sandbox.AuditKind) sandbox.AuditEntry {
	e := sandbox.AuditEntry{
		Time: f.began, Sandbox: f.t.id, Account: f.t.owner(), Kind: kind, Protocol: "tcp",
		Host: f.host, Address: f.to.Addr().String(), Port: f.to.Port(),
	}
	if f.udp {
		e.Protocol = "udp"
	}
	if e.Host == "" && len(f.names) > 0 {
		e.Host = f.names[len(f.names)-1]
	}
	return e
}

func (t *tenant) owner() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.account
}

// refused writes a refusal down, as far as the sandbox's rate allows.
func (f *flow) refused(rule, reason string) {
	f.g.count.denied.Add(1)
	e := f.entry(sandbox.AuditConnection)
	e.Verdict, e.Rule, e.Reason = sandbox.VerdictDenied, rule, reason
	f.g.noteRefusal(f.t, e)
}

// noteRefusal writes a refusal down, with a count of those before it that were
// too many.
func (g *Gateway) noteRefusal(t *tenant, e sandbox.AuditEntry) {
	ok, missed := t.refusals.pass()
	if !ok {
		return
	}
	if missed > 0 {
		g.audit.Note(sandbox.AuditEntry{Time: g.now(), Sandbox: t.id, Account: e.Account, Kind: sandbox.AuditDropped, Verdict: sandbox.VerdictDenied,
			Reason: "more refusals than are written one by one", Count: missed})
	}
	g.audit.Note(e)
}

// deny marks the flow as refused after all, and ends it.
func (f *flow) deny(rule, reason string) {
	f.mu.Lock()
	f.verdict, f.rule, f.reason = sandbox.VerdictDenied, rule, reason
	f.mu.Unlock()
	f.end(errCut{reason})
}

// fail marks the flow as one whose other end is out of reach.
func (f *flow) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.verdict, f.reason = sandbox.VerdictFailed, cause(err)
}

// cause is the innermost text of an error of dialling.
func cause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return fmt.Sprintf("%.200s", err)
}

// cut ends the flow for a reason of its own.
func (f *flow) cut(reason string) {
	f.g.count.cut.Add(1)
	f.end(errCut{reason})
}

// rejudge ends the flow unless the policy of now would let it begin as it did.
func (f *flow) rejudge() {
	const changed = "the policy has changed: "
	f.t.mu.Lock()
	r := f.t.rules
	f.t.mu.Unlock()
	f.mu.Lock()
	host, held, peeked, looked, diverted := f.host, f.held, f.peeked, f.looked, f.diverted
	f.mu.Unlock()
	if diverted {
		if r == nil || r.divert == nil {
			f.cut(changed + "nobody decides over it any more")
		}
		return
	}
	d := f.g.judge(r, f.udp, f.to, f.names)
	switch {
	case !d.allowed:
		f.cut(changed + d.reason)
	case d.peek && !peeked && !held:
		f.cut(changed + "its host must be known now")
	case host != "":
		h, look := r.host(host, f.to)
		if !h.allowed {
			f.cut(changed + h.reason)
		} else if look != looked && !(looked && r.byNameAlone(f.to)) {
			f.cut(changed + "its requests are looked at otherwise")
		}
	case d.peek && peeked && !d.opaque:
		f.cut(changed + hostHidden)
	}
}

func (f *flow) policy() sandbox.Policy {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	if f.t.rules == nil {
		return sandbox.Policy{Profile: sandbox.ProfileNone}
	}
	return f.t.rules.policy
}

func (f *flow) request(method, host, path string) Judgement {
	f.t.mu.Lock()
	r := f.t.rules
	f.t.mu.Unlock()
	if r == nil {
		return Judgement{Reason: noPolicy}
	}
	return r.request(method, host, path, f.to)
}

func (f *flow) note(e sandbox.AuditEntry) {
	f.mu.Lock()
	own := f.entry(sandbox.AuditRequest)
	f.mu.Unlock()
	e.Sandbox, e.Account, e.Kind, e.Address, e.Port, e.Protocol = own.Sandbox, own.Account, own.Kind, own.Address, own.Port, own.Protocol
	if e.Time.IsZero() {
		e.Time = f.g.now()
	}
	if e.Host == "" {
		e.Host = own.Host
	}
	if e.Verdict == sandbox.VerdictDenied {
		f.g.count.denied.Add(1)
		f.g.noteRefusal(f.t, e)
		return
	}
	f.g.audit.Note(e)
}

// dialHost opens a connection to what host is, on the flow's port.
func (f *flow) dialHost(ctx context.Context, host string) (net.Conn, error) {
	if slices.Contains(f.names, host) {
		f.mu.Lock()
		c := f.spare
		f.spare = nil
		f.mu.Unlock()
		if c != nil {
			return c, nil
		}
		return f.dialJudged(ctx, f.to, f.names)
	}
	f.t.mu.Lock()
	r, account := f.t.rules, f.t.account
	f.t.mu.Unlock()
	if r == nil {
		return nil, errCut{noPolicy}
	}
	if d := r.question(host); !d.allowed {
		return nil, errCut{d.reason}
	}
	addrs, err := f.g.resolver.addresses(ctx, account, host)
	if err != nil {
		return nil, err
	}
	err = errCut{"its name has no address that may be reached"}
	for _, a := range addrs[:min(len(addrs), 4)] {
		c, derr := f.dialJudged(ctx, netip.AddrPortFrom(a, f.to.Port()), []string{host})
		if derr == nil {
			return c, nil
		}
		err = derr
	}
	return nil, err
}

// dialJudged dials an address, judged at this moment.
func (f *flow) dialJudged(ctx context.Context, to netip.AddrPort, names []string) (net.Conn, error) {
	f.t.mu.Lock()
	r := f.t.rules
	f.t.mu.Unlock()
	if d := f.g.judge(r, false, to, names); !d.allowed {
		return nil, errCut{d.reason}
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return f.g.dial(ctx, "tcp", to.String())
}
