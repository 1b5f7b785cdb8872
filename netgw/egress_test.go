package netgw

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/net/icmp"
	xipv4 "golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

func allowing(domains ...string) *sandbox.Policy {
	return &sandbox.Policy{Profile: sandbox.ProfileAllow, Allow: []sandbox.Rule{{Name: "wanted", Domains: domains}}}
}

func TestOpenReachesThePublic(t *testing.T) {
	w := newWorld(t, nil, nil)
	for _, a := range []string{net.JoinHostPort(site, "80"), net.JoinHostPort(site6, "80")} {
		w.listenTCP(a, echo)
		c := w.mustEcho(a)
		sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
		go func() { c.Write(sent); c.(*net.TCPConn).CloseWrite() }()
		got, err := io.ReadAll(c)
		if err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%s: %d of %d bytes, %v", a, len(got), len(sent), err)
		}
		e := w.notes.want(t, a, func(e sandbox.AuditEntry) bool {
			return net.JoinHostPort(e.Address, "80") == a && e.Verdict == sandbox.VerdictAllowed
		})
		if n := int64(len(sent) + 6); e.Sent != n || e.Received != n || e.Rule != profileOpen {
			t.Errorf("the audit has %+v", e)
		}
	}
	if got := w.gateway.Traffic(w.id); got.Sent != got.Received || got.Sent < 8<<20 {
		t.Errorf("the traffic is %+v", got)
	}
}

func TestWithoutAPolicyNothingPasses(t *testing.T) {
	w := newWorld(t, nil, nil)
	w.listenTCP(site+":80", echo)
	w.mustEcho(site + ":80")
	w.gateway.Forget(w.id)
	w.mustRefuse(site+":80", "")
	if r := w.ask("example.com", dns.TypeA); r.Rcode != dns.RcodeRefused {
		t.Errorf("a question was answered: %v", r)
	}
}

// TestClosedPlaces dials what no policy opens, by address. Something listens at
// each.
func TestClosedPlaces(t *testing.T) {
	open := &sandbox.Policy{Profile: sandbox.ProfileOpen, Allow: []sandbox.Rule{{CIDRs: []string{"0.0.0.0/0", "::/0"}}}}
	w := newWorld(t, open, nil)
	for _, place := range forbiddenPlaces {
		var l net.Listener
		err := w.outside.within(func() (err error) {
			l, err = net.Listen("tcp", net.JoinHostPort(place, "80"))
			return err
		})
		if err == nil {
			defer l.Close()
		}
		address := net.JoinHostPort(place, "80")
		if place == "fe80::1:1" {
			address = "[fe80::1:1%" + device + "]:80"
		}
		if c, err := w.connect(address); err == nil {
			t.Errorf("%s was reached", place)
			c.Close()
		}
		if d := w.gateway.closed(netip.MustParseAddr(place)); d == "" {
			t.Errorf("%s is not closed", place)
		}
	}
	for _, a := range []string{"127.0.0.1", "::1", "::ffff:169.254.169.254", "::ffff:93.184.216.34", "224.0.0.1", "255.255.255.255", "ff02::1", "::"} {
		if w.gateway.closed(netip.MustParseAddr(a)) == "" {
			t.Errorf("%s is not closed", a)
		}
	}
	w.notes.want(t, "the metadata service", func(e sandbox.AuditEntry) bool {
		return e.Address == "169.254.169.254" && e.Verdict == sandbox.VerdictDenied && strings.Contains(e.Reason, "metadata")
	})
}

// TestTheHostIsClosed dials what listens on the host's own addresses.
func TestTheHostIsClosed(t *testing.T) {
	w := newWorld(t, nil, func(c *Config) { c.Dial = nil })
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		ip := a.(*net.IPNet).IP
		if ip.IsLoopback() || ip.IsLinkLocalUnicast() {
			continue // the sandbox has those itself
		}
		w.mustRefuse(net.JoinHostPort(ip.String(), port), "")
	}
	w.mustRefuse(net.JoinHostPort(GatewayAddr.String(), port), "")
	w.mustRefuse(net.JoinHostPort(GatewayAddr6.String(), port), "")
}

func TestOperatorOpensAndCloses(t *testing.T) {
	w := newWorld(t, nil, func(c *Config) {
		c.Allow = []netip.Prefix{netip.MustParsePrefix("10.1.2.0/24")}
		c.Deny = []netip.Prefix{netip.MustParsePrefix(otherSite + "/32")}
	})
	w.listenTCP("10.1.2.3:80", echo)
	w.listenTCP(otherSite+":80", echo)
	w.mustEcho("10.1.2.3:80")
	w.mustRefuse(otherSite+":80", "")
}

// TestNamesOnAnAllowList shows that nothing is asked upstream that is not allowed.
func TestNamesOnAnAllowList(t *testing.T) {
	w := newWorld(t, allowing("example.com", "*.cdn.example"), nil)
	w.dns.set("A example.com.", site)
	w.dns.set("TXT example.com.", `"v=spf1 -all"`)
	w.dns.set("A a.b.cdn.example.", "a.b.cdn.example. 60 IN CNAME other.example.", "other.example. 60 IN A "+otherSite)
	for _, c := range []struct {
		name string
		kind uint16
		want int
		n    int
	}{
		{"example.com", dns.TypeA, dns.RcodeSuccess, 1},
		{"EXAMPLE.com", dns.TypeA, dns.RcodeSuccess, 1},
		{"example.com", dns.TypeTXT, dns.RcodeSuccess, 1},
		{"example.com", dns.TypeAAAA, dns.RcodeNameError, 0},
		{"a.b.cdn.example", dns.TypeA, dns.RcodeSuccess, 2},
		{"cdn.example", dns.TypeA, dns.RcodeNameError, 0},
		{"c2VjcmV0.evil.example", dns.TypeA, dns.RcodeNameError, 0},
		{"c2VjcmV0.evil.example", dns.TypeTXT, dns.RcodeNameError, 0},
		{"c2VjcmV0.example.com", dns.TypeA, dns.RcodeNameError, 0},
		{"example.com", dns.TypeNULL, dns.RcodeRefused, 0},
		{"example.com", dns.TypeANY, dns.RcodeRefused, 0},
		{"example.com", dns.TypeHTTPS, dns.RcodeSuccess, 0},
	} {
		if r := w.ask(c.name, c.kind); r.Rcode != c.want || len(r.Answer) != c.n {
			t.Errorf("%s %s: %s, %d records, want %s, %d", c.name, dns.TypeToString[c.kind], dns.RcodeToString[r.Rcode], len(r.Answer), dns.RcodeToString[c.want], c.n)
		}
	}
	for _, q := range w.dns.questions() {
		if strings.Contains(q, "c2VjcmV0") || strings.Contains(q, "NULL") {
			t.Errorf("upstream was asked %s", q)
		}
	}
	for _, server := range []string{GatewayAddr.String(), GatewayAddr6.String()} {
		if r := w.askAt("tcp", net.JoinHostPort(server, "53"), "example.com", dns.TypeA); len(r.Answer) != 1 {
			t.Errorf("over TCP %s answers %v", server, r)
		}
	}
	w.notes.want(t, "the tunnel", func(e sandbox.AuditEntry) bool {
		return e.Kind == sandbox.AuditDNS && e.Host == "c2vjcmv0.evil.example" && e.Verdict == sandbox.VerdictDenied && e.Question == "TXT"
	})
}

// TestOtherResolvers finds none but the gateway, over any protocol.
func TestOtherResolvers(t *testing.T) {
	w := newWorld(t, &sandbox.Policy{Profile: sandbox.ProfileOpen, Allow: []sandbox.Rule{{CIDRs: []string{"0.0.0.0/0"}, Protocol: sandbox.ProtocolUDP}}}, nil)
	w.listenTCP(resolving+":853", echo)
	w.mustRefuse(resolving+":53", "")
	w.mustRefuse(resolving+":853", "")
	c, err := w.guest.dial(t.Context(), "udp", resolving+":53")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := new(dns.Msg).SetQuestion("example.com.", dns.TypeA)
	if r, _, err := (&dns.Client{Timeout: 5 * time.Second}).ExchangeWithConn(m, &dns.Conn{Conn: c}); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("another resolver answered %v, %v", r, err)
	}
}

// TestRebinding asks for names that turn out to be what is closed.
func TestRebinding(t *testing.T) {
	w := newWorld(t, nil, nil)
	w.dns.set("A rebind.example.", site, "169.254.169.254", "10.1.2.3", "127.0.0.1")
	w.dns.set("AAAA rebind.example.", "::ffff:169.254.169.254", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "::1")
	if r := w.ask("rebind.example", dns.TypeA); len(r.Answer) != 1 || r.Answer[0].(*dns.A).A.String() != site {
		t.Errorf("the answer is %v", r.Answer)
	}
	if r := w.ask("rebind.example", dns.TypeAAAA); len(r.Answer) != 0 {
		t.Errorf("the answer is %v", r.Answer)
	}
}

func clientHello(t *testing.T, host string) string {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go tls.Client(a, &tls.Config{ServerName: host, InsecureSkipVerify: true}).Handshake()
	buf := make([]byte, 16<<10)
	n, err := b.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n])
}

// TestAllowListByName shows what a connection must show of itself where only
// domains are allowed.
func TestAllowListByName(t *testing.T) {
	w := newWorld(t, allowing("example.com", "*.example.com"), nil)
	w.listenTCP(site+":443", echo)
	w.listenTCP(otherSite+":443", echo)
	w.listenTCP(site+":2222", echo)
	w.dns.set("A example.com.", site)
	w.dns.set("A www.example.com.", site)

	// Nothing was asked yet: the name that is shown decides where it goes.
	good := clientHello(t, "example.com")
	c, err := w.connect(otherSite + ":443")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := says(c, good); err != nil {
		t.Errorf("by the name that is shown: %v", err)
	}
	for what, first := range map[string]string{
		"another name": clientHello(t, "evil.example"), "no name": clientHello(t, ""), "no TLS": "SSH-2.0-x\r\n",
		"plain HTTP": "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", "two hosts": "GET / HTTP/1.1\r\nHost: example.com\r\nHost: evil.example\r\n\r\n",
		"HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/0.9": "GET /\r\n", "a broken hello": "\x16\x03\x01\x00\x05hello",
	} {
		t.Run(what, func(t *testing.T) { w.mustRefuse(otherSite+":443", first) })
	}
	w.mustRefuse(site+":2222", "") // no protocol that shows a name: its address must be known

	// Once its address was given out, what shows no name may pass, what shows
	// another may not.
	w.ask("example.com", dns.TypeA)
	w.mustEcho(site + ":2222")
	w.mustRefuse(site+":443", clientHello(t, "evil.example"))
	w.mustRefuse(site+":443", clientHello(t, ""))
	w.mustRefuse(otherSite+":2222", "")
	c = w.mustDial(site + ":443")
	if err := says(c, clientHello(t, "www.example.com")); err != nil {
		t.Error(err)
	}
	w.notes.want(t, "the fronted name", func(e sandbox.AuditEntry) bool {
		return e.Host == "evil.example" && e.Verdict == sandbox.VerdictDenied && e.Reason == notListed
	})
}

// TestABeginningWithoutEnd: where the first bytes decide, a sandbox that only ever
// begins is cut, and next to nothing of a gigabyte is taken from it.
func TestABeginningWithoutEnd(t *testing.T) {
	const size = 1 << 30
	w := newWorld(t, allowing("example.com"), nil)
	w.dns.set("A example.com.", site)
	w.listenTCP(site+":80", echo)
	w.ask("example.com", dns.TypeA)
	for _, begin := range []string{"GET /", "GET / HTTP/1.1\r\nX-Long: ", "GET / HTTP/1.1\r\nHost: example.com\r\nX-Long: ", "\x16\x03\x01\x40\x00\x01\x00\xff\xff"} {
		c := w.mustDial(site + ":80")
		if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
			t.Fatal(err)
		}
		sent, err := io.WriteString(c, begin)
		for piece := strings.Repeat("x", 64<<10); sent < size && err == nil; {
			var n int
			n, err = io.WriteString(c, piece)
			sent += n
		}
		if late := net.Error(nil); errors.As(err, &late) && late.Timeout() || sent > size/8 {
			t.Errorf("%q: %d bytes were taken, %v", begin, sent, err)
		}
		c.Close()
	}
}

func (w *world) mustDial(address string) net.Conn {
	w.t.Helper()
	c, err := w.connect(address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	return c
}

// TestServerSpeaksFirst passes a greeting before the client has said anything.
func TestServerSpeaksFirst(t *testing.T) {
	w := newWorld(t, allowing("example.com"), nil)
	w.dns.set("A example.com.", site)
	w.listenTCP(site+":25", func(c net.Conn) { io.WriteString(c, "220 hello\r\n"); io.Copy(c, c) })
	w.ask("example.com", dns.TypeA)
	c := w.mustDial(site + ":25")
	c.SetDeadline(time.Now().Add(20 * time.Second))
	b := make([]byte, 11)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "220 hello\r\n" {
		t.Fatalf("%q, %v", b, err)
	}
	if err := says(c, "EHLO x\r\n"); err != nil {
		t.Error(err)
	}
}

func TestDenyWins(t *testing.T) {
	w := newWorld(t, &sandbox.Policy{Profile: sandbox.ProfileOpen,
		Deny: []sandbox.Rule{{Name: "mail", Ports: []string{"25", "465", "587"}}, {Domains: []string{"*.bad.example"}}, {CIDRs: []string{otherSite}}}}, nil)
	w.listenTCP(site+":25", echo)
	w.listenTCP(site+":443", echo)
	w.listenTCP(otherSite+":443", echo)
	w.mustRefuse(site+":25", "")
	w.mustRefuse(otherSite+":443", "")
	w.mustRefuse(site+":443", clientHello(t, "www.bad.example"))
	w.mustRefuse(site+":443", "GET / HTTP/1.1\r\nHost: WWW.bad.example:443\r\n\r\n")
	w.mustRefuse(site+":443", "\r\n\r\nGET / HTTP/1.1\r\nhost: www.bad.example\r\n\r\n")
	c := w.mustDial(site + ":443")
	if err := says(c, clientHello(t, "good.example")); err != nil {
		t.Error(err)
	}
	if r := w.ask("x.bad.example", dns.TypeA); r.Rcode != dns.RcodeNameError {
		t.Errorf("a question was answered: %v", r)
	}
	w.notes.want(t, "the mail", func(e sandbox.AuditEntry) bool { return e.Port == 25 && e.Rule == "mail" })
}

// TestPolicyCutsWhatIsOpen changes the policy under open connections.
func TestPolicyCutsWhatIsOpen(t *testing.T) {
	w := newWorld(t, nil, nil)
	w.listenTCP(site+":80", echo)
	w.listenTCP(otherSite+":80", echo)
	stays, goes := w.mustEcho(site+":80"), w.mustEcho(otherSite+":80")
	w.apply(&sandbox.Policy{Profile: sandbox.ProfileAllow, Allow: []sandbox.Rule{{CIDRs: []string{site}}}})
	goes.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadAll(goes); !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("what is refused now ended with %v", err)
	}
	if err := says(stays, "still here\n"); err != nil {
		t.Errorf("what is allowed still ended: %v", err)
	}
	w.notes.want(t, "the cut", func(e sandbox.AuditEntry) bool {
		return e.Address == otherSite && strings.HasPrefix(e.Reason, "the policy has changed") && e.Sent == 6
	})
	w.apply(&sandbox.Policy{Profile: sandbox.ProfileNone})
	if err := says(stays, "and now\n"); err == nil {
		t.Error("the profile none left a connection open")
	}
}

// TestDatagrams finds UDP closed, QUIC too, but for what a rule names.
func TestDatagrams(t *testing.T) {
	w := newWorld(t, nil, nil)
	for _, port := range []string{"443", "9000"} {
		var pc net.PacketConn
		err := w.outside.within(func() (err error) { pc, err = net.ListenPacket("udp", site+":"+port); return err })
		if err != nil {
			t.Fatal(err)
		}
		defer pc.Close()
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := pc.ReadFrom(b)
				if err != nil {
					return
				}
				pc.WriteTo(b[:n], from)
			}
		}()
	}
	try := func(port string) error {
		c, err := w.guest.dial(t.Context(), "udp", site+":"+port)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return says(c, "datagram")
	}
	for _, port := range []string{"443", "9000"} {
		if err := try(port); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("port %s: %v, want a refusal", port, err)
		}
	}
	w.apply(&sandbox.Policy{Profile: sandbox.ProfileOpen, Allow: []sandbox.Rule{{CIDRs: []string{site}, Ports: []string{"9000"}, Protocol: sandbox.ProtocolUDP}}})
	if err := try("9000"); err != nil {
		t.Error(err)
	}
	if err := try("443"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("QUIC: %v, want a refusal", err)
	}
}

// TestPing pings the outside, which answers nobody, and the gateway.
func TestPing(t *testing.T) {
	w := newWorld(t, nil, nil)
	for to, want := range map[string]icmp.Type{site: xipv4.ICMPTypeDestinationUnreachable, GatewayAddr.String(): xipv4.ICMPTypeEchoReply} {
		var c *icmp.PacketConn
		err := w.guest.within(func() (err error) { c, err = icmp.ListenPacket("ip4:icmp", GuestAddr.String()); return err })
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		b, err := (&icmp.Message{Type: xipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: 7, Seq: 1, Data: []byte("tunnel")}}).Marshal(nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.WriteTo(b, &net.IPAddr{IP: net.ParseIP(to)}); err != nil {
			t.Fatal(err)
		}
		c.SetReadDeadline(time.Now().Add(20 * time.Second))
		got := make([]byte, 1500)
		n, from, err := c.ReadFrom(got)
		if err != nil {
			t.Fatalf("ping %s: %v", to, err)
		}
		m, err := icmp.ParseMessage(1, got[:n])
		if err != nil || m.Type != want {
			t.Errorf("ping %s: %v of %v, %v, want %v", to, m, from, err, want)
		}
	}
	w.notes.want(t, "the ping", func(e sandbox.AuditEntry) bool { return e.Protocol == "icmp" && e.Address == site })
}

// TestOutOfReach tells a sandbox at once what is the matter with its other end.
func TestOutOfReach(t *testing.T) {
	w := newWorld(t, nil, nil)
	if _, err := w.connect(site + ":81"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("a port that nobody listens on: %v", err)
	}
	for _, a := range []string{"93.184.0.1:80", "[2606:2800::1]:80"} { // the outside has no route there
		if _, err := w.connect(a); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("%s: %v", a, err)
		}
	}
	w.notes.want(t, "the failure", func(e sandbox.AuditEntry) bool {
		return e.Address == "93.184.0.1" && e.Verdict == sandbox.VerdictFailed
	})
}
