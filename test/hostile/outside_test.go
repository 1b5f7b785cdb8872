// Package hostile attacks a server from within a real sandbox: each case says
// what is tried, what must happen, and what the audit must show.
package hostile

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/berth-dev/berth/test/rig"
)

// What stands for the internet: addresses that this machine has for as long as a
// test runs and that the operator opens; one more that is not opened, where
// everything listens too; and a name server.
const (
	site       = "198.18.78.2"
	otherSite  = "198.18.78.3"
	closedSite = "198.18.75.2"
	nameServer = "127.78.0.1:5378"
)

// records are what the name server knows.
var records = map[string][]string{
	"A good.outside.example.":      {site},
	"A www.good.outside.example.":  {site},
	"A other.outside.example.":     {otherSite},
	"A rebind.outside.example.":    {"169.254.169.254", "127.0.0.1", "10.1.2.3", closedSite},
	"AAAA rebind.outside.example.": {"fd00:ec2::254", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "::1"},
	"TXT good.outside.example.":    {`"text"`},
}

// outside notes who came.
type outside struct {
	mu    sync.Mutex
	seen  map[string]int // connections and datagrams by address and port
	asked []string       // questions
}

func (o *outside) came(at string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.seen[at]++
}

func (o *outside) count(at string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.seen[at]
}

func (o *outside) questions() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.asked, "\n")
}

var flags = []string{"--resolver", nameServer, "--egress-allow", site + "," + otherSite}

func newOutside(t *testing.T) *outside {
	t.Helper()
	o := &outside{seen: map[string]int{}}
	for _, a := range []string{site, otherSite, closedSite} {
		rig.Address(t, a)
		o.listen(t, a+":80", false)
		o.listen(t, a+":443", true)
		o.listen(t, a+":25", false)
		o.listen(t, a+":853", false)
		o.packets(t, a+":443")
		o.packets(t, a+":53")
	}
	rig.Names(t, nameServer, o.answer)
	return o
}

// listen serves HTTP, behind TLS or not, that says which host was asked for.
func (o *outside) listen(t *testing.T, at string, secure bool) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	l = &counting{l, func() { o.came(at) }}
	if secure {
		certificate, _ := rig.Certificate(t, "*.outside.example")
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{certificate}})
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			io.WriteString(w, strings.Repeat("begun\n", 1000))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, "%s at %s", r.Host, at)
	})}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
}

// counting is a listener that tells of every connection.
type counting struct {
	net.Listener
	came func()
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.came()
	}
	return conn, err
}

// packets echoes datagrams.
func (o *outside) packets(t *testing.T, at string) {
	t.Helper()
	pc, err := net.ListenPacket("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pc.Close() })
	go func() {
		b := make([]byte, 2048)
		for {
			n, from, err := pc.ReadFrom(b)
			if err != nil {
				return
			}
			o.came(at + "/udp")
			pc.WriteTo(b[:n], from)
		}
	}()
}

// answer answers with what there is, and notes what was asked.
func (o *outside) answer(w dns.ResponseWriter, q *dns.Msg) {
	ask := q.Question[0]
	key := dns.TypeToString[ask.Qtype] + " " + strings.ToLower(ask.Name)
	o.mu.Lock()
	o.asked = append(o.asked, key)
	o.mu.Unlock()
	m := new(dns.Msg).SetReply(q)
	data, ok := records[key]
	if !ok && !strings.HasSuffix(ask.Name, ".good.outside.example.") && records["A "+strings.ToLower(ask.Name)] == nil {
		m.Rcode = dns.RcodeNameError
	}
	for _, d := range data {
		rr, err := dns.NewRR(fmt.Sprintf("%s 60 IN %s %s", ask.Name, dns.TypeToString[ask.Qtype], d))
		if err != nil {
			panic(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	w.WriteMsg(m)
}

// hostAddresses are those of this machine that a sandbox could mean.
func hostAddresses(t *testing.T) []string {
	t.Helper()
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, a := range all {
		ip, ok := netip.AddrFromSlice(a.(*net.IPNet).IP)
		if ip = ip.Unmap(); ok && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && ip.String() != site && ip.String() != otherSite {
			found = append(found, ip.String())
		}
	}
	return found
}
