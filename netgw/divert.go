package netgw

import (
	"context"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/berth-dev/berth/sandbox"
)

// Diverter decides over the connections of the sandboxes whose policy names it,
// before the rules do: it takes one over, or leaves it to them.
type Diverter interface {
	// Resolve says what becomes of a question for a name, in lower case and without
	// the dot at its end.
	Resolve(id sandbox.ID, name string) Resolution

	// Divert is asked once a client has shown its first bytes, which guest replays.
	// If it takes the connection, it serves it to its end, the context's at the
	// latest, and closes nothing. Otherwise it has read nothing of it, and the
	// policy's rules judge it. An error refuses it, and is the audit's reason.
	Divert(ctx context.Context, f *Flow, guest net.Conn) (taken bool, err error)
}

// Resolution is what a diverter says to a question for a name.
type Resolution int

const (
	ResolveOutside Resolution = iota // as any other
	ResolveHere                      // as any other; a name that is nowhere has an address that only the diverter serves
	ResolveRefused                   // there is no such name
)

// nowhere are the addresses of names that only a diverter knows. They are closed
// to everybody, so that nothing else is ever reached by them.
var nowhere = netip.MustParsePrefix("198.18.0.0/15")

// resolveHereTime bounds the search outside for a name that the diverter serves in
// any case.
const resolveHereTime = 1500 * time.Millisecond

// firstDialTime bounds the dialling of a server before its client has spoken: the
// diverter may serve what nobody else does.
const firstDialTime = 2 * time.Second

// ruleDivert is how the audit calls what a diverter has decided.
const ruleDivert = "divert"

func (t *tenant) diverter() Diverter {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rules == nil {
		return nil
	}
	return t.rules.divert
}

// clientSpeaksFirst reports whether at a port a client always is the first to
// speak: nothing needs to be dialled before it has.
func clientSpeaksFirst(port uint16) bool { return port == 80 || port == 443 }

// beginDiverted gives an attempt of a diverted sandbox its place. It is judged once
// its first bytes are known.
func (g *Gateway) beginDiverted(ctx context.Context, t *tenant, to netip.AddrPort) *flow {
	f := &flow{g: g, t: t, to: to, began: g.now(), verdict: sandbox.VerdictAllowed, held: true, diverted: true}
	f.ctx, f.end = context.WithCancelCause(ctx)
	t.mu.Lock()
	has := len(t.flows)
	f.names = t.learned.names(to.Addr())
	t.flows[f] = struct{}{}
	t.mu.Unlock()
	if !g.room.enter(has) {
		g.count.full.Add(1)
		f.drop()
		f.refused("", "too many connections are open")
		return nil
	}
	g.count.open.Add(1)
	return f
}

// divert serves one attempt of a diverted sandbox to connect.
func (l *Link) divert(r *tcp.ForwarderRequest, to netip.AddrPort, by Diverter) {
	f := l.gateway.beginDiverted(l.ctx, l.tenant, to)
	if f == nil {
		r.Complete(true)
		return
	}
	defer f.finish()
	var up net.Conn
	if !clientSpeaksFirst(to.Port()) { // the server may be the first: then the rules decide alone
		ctx, cancel := context.WithTimeout(f.ctx, firstDialTime)
		up, _ = f.dialJudged(ctx, f.to, f.names) // nil: the diverter may want it all the same
		cancel()
		if up != nil {
			defer up.Close()
		}
	}
	guest, err := l.accept(r)
	if err != nil {
		f.fail(err)
		return
	}
	defer guest.Close()
	stop := context.AfterFunc(f.ctx, func() { guest.abort(); abort(up) })
	defer stop()
	f.serveDiverted(guest, up, by)
}

// serveDiverted asks the diverter, and goes on by the rules if it declines.
func (f *flow) serveDiverted(guest *guestConn, up net.Conn, by Diverter) {
	s := &splice{flow: f, guest: guest, up: up}
	if up != nil {
		s.download()
	}
	first, speech, host, err := f.peek(guest, up == nil)
	switch {
	case err != nil && up != nil && len(first) == 0: // it listens only
		s.run(nil)
		return
	case err != nil:
		s.abort()
		return
	case speech == malformed:
		f.deny("", "its first bytes are malformed")
		s.abort()
		return
	}
	f.mu.Lock()
	f.held, f.peeked, f.host = false, true, host
	f.mu.Unlock()
	if up == nil || s.stopDownload() {
		taken, err := by.Divert(f.ctx, f.shown(host, speech), &replay{Conn: s.guest, first: first})
		if err != nil && f.ctx.Err() == nil {
			f.deny(ruleDivert, fmt.Sprintf("%.200s", err))
			s.abort()
			return
		}
		if taken || f.ctx.Err() != nil {
			return
		}
	}
	f.undivert(s, first, speech, host)
}

// shown is the flow as those see it who take it over.
func (f *flow) shown(host string, sp speech) *Flow {
	f.t.mu.Lock()
	defer f.t.mu.Unlock()
	f.mu.Lock()
	f.rule = ruleDivert
	f.mu.Unlock()
	return &Flow{Sandbox: f.t.id, Name: f.t.name, Account: f.t.account, Host: host, Addr: f.to, TLS: sp == speaksTLS, HTTP: sp == speaksHTTP, f: f}
}

// undivert judges a connection that the diverter has left to the rules.
func (f *flow) undivert(s *splice, first []byte, sp speech, host string) {
	f.t.mu.Lock()
	r := f.t.rules
	f.t.mu.Unlock()
	f.mu.Lock()
	f.diverted, f.rule = false, ""
	f.mu.Unlock()
	d := f.g.judge(r, false, f.to, f.names)
	if !d.allowed && (host == "" || !nowhere.Contains(f.to.Addr())) {
		f.deny(d.rule, d.reason)
		s.abort()
		return
	}
	look, ok := f.heard(sp, host, d)
	if !ok {
		s.abort()
		return
	}
	if look {
		f.hand(s, first, sp, host)
		return
	}
	if s.up == nil {
		c, err := f.dialShown(host)
		if err != nil {
			f.outOfReach(err)
			s.guest.abort()
			return
		}
		defer c.Close()
		defer context.AfterFunc(f.ctx, func() { abort(c) })()
		s.up = c
	}
	s.run(first)
}

// dialShown opens the connection that the client has asked for: to the address that
// it dialled, unless that leads nowhere.
func (f *flow) dialShown(host string) (net.Conn, error) {
	if nowhere.Contains(f.to.Addr()) {
		return f.dialHost(f.ctx, host)
	}
	return f.dialJudged(f.ctx, f.to, f.names)
}

// Pass copies bytes between the sandbox and where its diverter has led it, until
// both directions have ended or the flow does. It closes neither.
func (f *Flow) Pass(guest, up net.Conn) {
	done := make(chan error, 1)
	go func() {
		_, err := pass(guest, up, func(n int) { f.f.add(0, n) })
		closeWrite(guest)
		done <- err
	}()
	_, err := pass(up, guest, func(n int) { f.f.add(n, 0) })
	if closeWrite(up); err != nil {
		abort(up)
	}
	<-done
}

func closeWrite(c net.Conn) {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite() // who reads there learns of the end, or of the reset
	}
}

// here answers a question for a name that is known to the diverter alone.
func (a *asked) here(reply *dns.Msg, name string) {
	reply.Rcode, reply.Answer = dns.RcodeSuccess, nil
	if a.q.Qtype != dns.TypeA {
		return // it has no other address
	}
	h := fnv.New32a()
	h.Write([]byte(name))
	n := h.Sum32() & 0x1ffff
	at := nowhere.Addr().As4()
	at[1], at[2], at[3] = at[1]|byte(n>>16), byte(n>>8), byte(n)
	reply.Answer = []dns.RR{&dns.A{Hdr: dns.RR_Header{Name: a.q.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 30}, A: net.IP(at[:])}}
}

// found reports whether an answer holds an address.
func found(records []dns.RR) bool {
	for _, rr := range records {
		if _, ok := addressOf(rr); ok {
			return true
		}
	}
	return false
}

// told lists the addresses of an answer that is not remembered: they lead nowhere.
func (a *asked) told(records []dns.RR) []string {
	var all []string
	for _, rr := range records {
		if addr, ok := addressOf(rr); ok {
			all = append(all, addr.String())
		}
	}
	return all
}
