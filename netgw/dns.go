package netgw

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/netutil"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"

	"github.com/berth-dev/berth/sandbox"
)

// Bounds on the questions of one sandbox. They leave room for a package manager
// and little for whoever would send a file in questions.
const (
	questionRate     = 50 // a second, that the cache does not answer
	questionBurst    = 300
	questionsAtOnce  = 64
	maxQuestionName  = 160 // bytes of a name, under the profile open
	dnsConnections   = 16
	questionTime     = 8 * time.Second
	maxAnswersNoted  = 8
	browsersOwnNames = "use-application-dns.net." // browsers ask it before they turn to names of their own
)

// answered are the types of questions that are answered.
var answered = []uint16{dns.TypeA, dns.TypeAAAA, dns.TypeCNAME, dns.TypeTXT, dns.TypeMX, dns.TypeSRV, dns.TypePTR}

// withoutAnswer are the types for which a name is said to have nothing: whoever
// asks for them goes on with addresses.
var withoutAnswer = []uint16{dns.TypeHTTPS, dns.TypeSVCB, dns.TypeNS, dns.TypeSOA, dns.TypeCAA, dns.TypeDS, dns.TypeDNSKEY, dns.TypeNAPTR}

// dnsServers answer a sandbox's questions at the gateway's own addresses.
type dnsServers struct {
	all  []*dns.Server
	done chan error
	busy chan struct{} // a place for each question under way
}

// serveDNS begins to answer, over UDP and TCP and both families.
func (l *Link) serveDNS() error {
	l.dns.busy = make(chan struct{}, questionsAtOnce)
	l.dns.done = make(chan error, 4)
	for _, at := range []struct {
		proto tcpip.NetworkProtocolNumber
		addr  netip.Addr
	}{{ipv4.ProtocolNumber, GatewayAddr}, {ipv6.ProtocolNumber, GatewayAddr6}} {
		full := tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(at.addr.AsSlice()), Port: 53}
		packets, err := gonet.DialUDP(l.stack, &full, nil, at.proto)
		if err != nil {
			return fmt.Errorf("listen for questions: %w", err)
		}
		l.answer(&dns.Server{PacketConn: packets, Handler: dns.HandlerFunc(l.question)})
		streams, err := gonet.ListenTCP(l.stack, full, at.proto)
		if err != nil {
			return fmt.Errorf("listen for questions: %w", err)
		}
		l.answer(&dns.Server{Listener: netutil.LimitListener(streams, dnsConnections), Handler: dns.HandlerFunc(l.question), MaxTCPQueries: 256})
	}
	return nil
}

func (l *Link) answer(s *dns.Server) {
	s.MsgAcceptFunc = func(h dns.Header) dns.MsgAcceptAction {
		const response = 1 << 15
		switch {
		case h.Bits&response != 0:
			return dns.MsgIgnore
		case h.Bits>>11&0xf != dns.OpcodeQuery:
			return dns.MsgRejectNotImplemented
		case h.Qdcount != 1:
			return dns.MsgReject
		}
		return dns.MsgAccept
	}
	l.dns.all = append(l.dns.all, s)
	started := make(chan struct{})
	s.NotifyStartedFunc = func() { close(started) }
	go func() { l.dns.done <- s.ActivateAndServe() }()
	<-started
}

// close ends the servers and waits for them.
func (d *dnsServers) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, s := range d.all {
		s.ShutdownContext(ctx)
	}
	for range d.all {
		<-d.done
	}
}

// question answers one message.
func (l *Link) question(w dns.ResponseWriter, m *dns.Msg) {
	reply := new(dns.Msg)
	reply.SetReply(m)
	reply.RecursionAvailable = true
	select {
	case l.dns.busy <- struct{}{}:
		defer func() { <-l.dns.busy }()
	default:
		return // it asks again
	}
	q := m.Question[0]
	q.Name = strings.ToLower(q.Name)
	asked := asked{l: l, q: q, began: l.gateway.now()}
	ctx, cancel := context.WithTimeout(l.ctx, questionTime)
	defer cancel()
	asked.answer(ctx, reply)
	size := dns.MinMsgSize
	if opt := m.IsEdns0(); opt != nil {
		reply.SetEdns0(1232, false)
		size = min(1232, max(size, int(opt.UDPSize())))
	}
	if _, stream := w.RemoteAddr().(*net.TCPAddr); stream {
		size = dns.MaxMsgSize
	}
	reply.Truncate(size)
	w.WriteMsg(reply)
}

// asked is one question under way.
type asked struct {
	l     *Link
	q     dns.Question
	began time.Time
}

// answer fills in a reply and tells the audit.
func (a *asked) answer(ctx context.Context, reply *dns.Msg) {
	t, g := a.l.tenant, a.l.gateway
	g.count.questions.Add(1)
	name := strings.TrimSuffix(a.q.Name, ".")
	t.mu.Lock()
	r, account := t.rules, t.account
	t.mu.Unlock()
	if r == nil || a.q.Qclass != dns.ClassINET || !slices.Contains(answered, a.q.Qtype) && !slices.Contains(withoutAnswer, a.q.Qtype) {
		reply.Rcode = dns.RcodeRefused
		a.note(name, refuse("", cmp.Or(r.missing(), "questions of this type are not answered")), nil, "")
		return
	}
	d, resolution := a.judge(r, name), ResolveOutside
	if r.divert != nil {
		resolution = r.divert.Resolve(t.id, name)
	}
	if resolution == ResolveRefused {
		d = refuse(ruleDivert, "its diverter knows no such name")
	}
	if !d.allowed && resolution == ResolveHere {
		a.here(reply, name)
		a.note(name, decision{allowed: true, rule: ruleDivert}, a.told(reply.Answer), "")
		return
	}
	if !d.allowed {
		// Whoever is told that a question was refused asks again for a minute.
		reply.Rcode = dns.RcodeNameError
		a.note(name, d, nil, "")
		return
	}
	switch {
	case a.q.Name == browsersOwnNames:
		reply.Rcode = dns.RcodeNameError
		return
	case slices.Contains(withoutAnswer, a.q.Qtype):
		return // there is nothing of this type
	}
	if resolution == ResolveHere {
		limited, cancel := context.WithTimeout(ctx, resolveHereTime)
		defer cancel()
		ctx = limited
	}
	got, err := g.resolver.ask(ctx, account, a.q, t.questions.allow)
	if resolution == ResolveHere && err != errTooMany && (err != nil || !found(a.keep(r, got))) {
		a.here(reply, name)
		a.note(name, decision{allowed: true, rule: ruleDivert}, a.told(reply.Answer), "")
		return
	}
	if err != nil {
		reply.Rcode = dns.RcodeServerFailure
		if err == errTooMany {
			reply.Rcode = dns.RcodeRefused
			a.note(name, refuse("", "too many questions in a short time"), nil, "")
			return
		}
		a.note(name, d, nil, cause(err))
		return
	}
	reply.Rcode = got.rcode
	reply.Answer = a.keep(r, got)
	a.note(name, d, a.learn(t, name, reply.Answer), "")
}

// missing is the reason to refuse a question where there are no rules.
func (r *rules) missing() string {
	if r == nil {
		return noPolicy
	}
	return ""
}

// judge says whether a name may be asked for.
func (a *asked) judge(r *rules, name string) decision {
	d := r.question(name)
	if d.allowed && d.rule == profileOpen && len(name) > maxQuestionName {
		return refuse("", "the name is too long")
	}
	return d
}

// keep returns the records of an answer that the sandbox may see: those of the
// chain from its question, without addresses that are closed.
func (a *asked) keep(r *rules, got answer) []dns.RR {
	var kept []dns.RR
	left := got.left(a.l.gateway.now())
	for _, rr := range got.records {
		if addr, ok := addressOf(rr); ok && a.l.gateway.closed(addr) != "" {
			continue
		}
		if c, ok := rr.(*dns.CNAME); ok && r.denies(strings.ToLower(strings.TrimSuffix(c.Target, "."))) {
			return nil
		}
		rr = dns.Copy(rr)
		rr.Header().Ttl = left
		kept = append(kept, rr)
	}
	return kept
}

// denies reports whether a deny rule names a host, whatever the port.
func (r *rules) denies(name string) bool {
	return slices.ContainsFunc(r.deny, func(d rule) bool { return !d.inspects && len(d.ports) == 0 && d.domains.match(name) })
}

// learn remembers by which name the sandbox has the addresses, and returns them.
func (a *asked) learn(t *tenant, name string, records []dns.RR) []string {
	var told []string
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rr := range records {
		if addr, ok := addressOf(rr); ok {
			t.learned.add(name, addr, time.Duration(rr.Header().Ttl)*time.Second)
			if len(told) < maxAnswersNoted {
				told = append(told, addr.String())
			}
		}
	}
	return told
}

// note tells the audit what became of a question.
func (a *asked) note(name string, d decision, answers []string, failure string) {
	g, t := a.l.gateway, a.l.tenant
	e := sandbox.AuditEntry{
		Time: a.began, Sandbox: t.id, Account: t.owner(), Kind: sandbox.AuditDNS, Verdict: sandbox.VerdictAllowed, Rule: d.rule, Reason: d.reason,
		Host: name, Question: dns.TypeToString[a.q.Qtype], Answers: answers, DurationMS: g.now().Sub(a.began).Milliseconds(),
	}
	if len(e.Host) > 255 {
		e.Host = e.Host[:255]
	}
	switch {
	case failure != "":
		e.Verdict, e.Reason = sandbox.VerdictFailed, failure
	case !d.allowed:
		e.Verdict = sandbox.VerdictDenied
		g.count.refused.Add(1)
		g.noteRefusal(t, e)
		return
	}
	g.audit.Note(e)
}

func addressOf(rr dns.RR) (netip.Addr, bool) {
	switch rr := rr.(type) {
	case *dns.A:
		a, ok := netip.AddrFromSlice(rr.A)
		return a.Unmap(), ok
	case *dns.AAAA:
		return netip.AddrFromSlice(rr.AAAA)
	}
	return netip.Addr{}, false
}

// allow is pass without the count of what did not.
func (l *limiter) allow() bool {
	ok, _ := l.pass()
	return ok
}
