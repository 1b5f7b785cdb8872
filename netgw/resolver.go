package netgw

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"

	"github.com/berth-dev/berth/sandbox"
)

// How long an answer is kept, whatever it says of itself.
const (
	minTTL      = 5 * time.Second
	maxTTL      = time.Hour
	negativeTTL = 30 * time.Second
)

// Bounds of the cache and of one answer.
const (
	maxCached   = 2048 // answers of one account
	maxAccounts = 1024
	maxRecords  = 64 // of one answer
	askTime     = 2 * time.Second
)

// resolver asks upstream for names, and keeps the answers of each account apart:
// none learns from the time of an answer what another has asked.
type resolver struct {
	servers []netip.AddrPort
	dial    func(ctx context.Context, network, address string) (net.Conn, error)
	now     func() time.Time
	flights singleflight.Group

	mu    sync.Mutex
	cache map[string]map[dns.Question]answer // by account
}

// answer is what upstream said.
type answer struct {
	rcode   int
	records []dns.RR
	until   time.Time
}

// left is the answer's TTL from now on, in seconds.
func (a answer) left(now time.Time) uint32 {
	return uint32(max(a.until.Sub(now), time.Second) / time.Second)
}

var errTooMany = errors.New("too many questions")

// newResolver takes the servers, or those of the host.
func newResolver(servers []netip.AddrPort, dial func(context.Context, string, string) (net.Conn, error), now func() time.Time) (*resolver, error) {
	r := &resolver{servers: servers, dial: dial, now: now, cache: map[string]map[dns.Question]answer{}}
	if len(servers) > 0 {
		return r, nil
	}
	// A host without one has no names to give: questions fail then, and say so.
	c, err := dns.ClientConfigFromFile("/etc/resolv.conf")
	if err != nil {
		return r, nil
	}
	for _, s := range c.Servers {
		if a, err := netip.ParseAddr(s); err == nil {
			r.servers = append(r.servers, netip.AddrPortFrom(a, 53))
		}
	}
	return r, nil
}

// ask answers a question of an account. may is called before upstream is asked;
// false is errTooMany.
func (r *resolver) ask(ctx context.Context, account string, q dns.Question, may func() bool) (answer, error) {
	r.mu.Lock()
	a, ok := r.cache[account][q]
	r.mu.Unlock()
	if ok && r.now().Before(a.until) {
		return a, nil
	}
	if may != nil && !may() {
		return answer{}, errTooMany
	}
	key := account + "\x00" + q.String()
	flight := r.flights.DoChan(key, func() (any, error) {
		// Those who wait may leave; the answer serves the next one.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), questionTime)
		defer cancel()
		a, err := r.askUpstream(ctx, q)
		if err == nil {
			r.store(account, q, a)
		}
		return a, err
	})
	select {
	case got := <-flight:
		if got.Err != nil {
			return answer{}, got.Err
		}
		return got.Val.(answer), nil
	case <-ctx.Done():
		return answer{}, context.Cause(ctx)
	}
}

// askUpstream asks one server after the other, twice around.
func (r *resolver) askUpstream(ctx context.Context, q dns.Question) (answer, error) {
	if len(r.servers) == 0 {
		return answer{}, errors.New("the server has no resolvers: /etc/resolv.conf names none")
	}
	var last error
	for range 2 {
		for _, s := range r.servers {
			if ctx.Err() != nil {
				return answer{}, context.Cause(ctx)
			}
			m, err := r.exchange(ctx, s, q)
			if err == nil {
				return r.read(q, m), nil
			}
			last = err
		}
	}
	return answer{}, last
}

// exchange asks one server, again over TCP if its answer was cut.
func (r *resolver) exchange(ctx context.Context, server netip.AddrPort, q dns.Question) (*dns.Msg, error) {
	for _, network := range []string{"udp", "tcp"} {
		m, err := r.exchangeOver(ctx, network, server, q)
		if err != nil {
			return nil, err
		}
		if !m.Truncated {
			return m, nil
		}
	}
	return nil, fmt.Errorf("the answer of %s was cut", server)
}

func (r *resolver) exchangeOver(ctx context.Context, network string, server netip.AddrPort, q dns.Question) (*dns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	c, err := r.dial(ctx, network, server.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	m := new(dns.Msg)
	m.Id = dns.Id()
	m.RecursionDesired = true
	m.Question = []dns.Question{q}
	m.SetEdns0(1232, false)
	client := &dns.Client{Net: network, Timeout: askTime, UDPSize: 1232}
	got, _, err := client.ExchangeWithConnContext(ctx, m, &dns.Conn{Conn: c, UDPSize: 1232})
	switch {
	case err != nil:
		return nil, err
	case len(got.Question) != 1 || !strings.EqualFold(got.Question[0].Name, q.Name) || got.Question[0].Qtype != q.Qtype:
		return nil, fmt.Errorf("%s answered another question", server)
	case got.Rcode != dns.RcodeSuccess && got.Rcode != dns.RcodeNameError:
		return nil, fmt.Errorf("%s answered %s", server, dns.RcodeToString[got.Rcode])
	}
	return got, nil
}

// read takes out of a message the chain of records that answers the question:
// what else it holds is not ours to believe.
func (r *resolver) read(q dns.Question, m *dns.Msg) answer {
	a := answer{rcode: m.Rcode}
	ttl, name := maxTTL, q.Name
	for range 16 {
		next := ""
		for _, rr := range m.Answer {
			h := rr.Header()
			if !strings.EqualFold(h.Name, name) || h.Class != dns.ClassINET || len(a.records) >= maxRecords {
				continue
			}
			c, alias := rr.(*dns.CNAME)
			if h.Rrtype != q.Qtype && !alias {
				continue
			}
			a.records = append(a.records, rr)
			ttl = min(ttl, time.Duration(h.Ttl)*time.Second)
			if alias && q.Qtype != dns.TypeCNAME {
				next = c.Target
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	if len(a.records) == 0 {
		ttl = negativeTTL
	}
	a.until = r.now().Add(max(minTTL, ttl))
	return a
}

func (r *resolver) store(account string, q dns.Question, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := r.cache[account]
	if own == nil {
		if len(r.cache) >= maxAccounts {
			clear(r.cache)
		}
		own = map[dns.Question]answer{}
		r.cache[account] = own
	}
	if len(own) >= maxCached {
		now, spare := r.now(), maxCached/8
		for q, old := range own { // what is over, and some that is not
			if now.After(old.until) || spare > 0 {
				delete(own, q)
				spare--
			}
		}
	}
	own[q] = a
}

// addresses looks a name up for a connection that shows it.
func (r *resolver) addresses(ctx context.Context, account, host string) ([]netip.Addr, error) {
	var all []netip.Addr
	var last error
	for _, kind := range []uint16{dns.TypeA, dns.TypeAAAA} {
		a, err := r.ask(ctx, account, dns.Question{Name: dns.Fqdn(host), Qtype: kind, Qclass: dns.ClassINET}, nil)
		if err != nil {
			last = err
			continue
		}
		for _, rr := range a.records {
			if addr, ok := addressOf(rr); ok {
				all = append(all, addr)
			}
		}
	}
	if len(all) == 0 && last != nil {
		return nil, last
	}
	if len(all) == 0 {
		return nil, sandbox.Errorf("resolve "+host, sandbox.NotFound, "it has no address")
	}
	return all, nil
}
