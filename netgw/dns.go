package netgw

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

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

// question answers a message that has one question.
func (l *Link) question(m *dns.Msg, stream bool) *dns.Msg {
	reply := new(dns.Msg)
	reply.SetReply(m)
	reply.RecursionAvailable = true
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
	if stream {
		size = dns.MaxMsgSize
	}
	reply.Truncate(size)
	return reply
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
