package netgw

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/berth-dev/berth/sandbox"
)

// taker is a diverter that takes over what its hosts are asked for.
type taker struct {
	mu    sync.Mutex
	seen  []Flow
	hosts map[string]Resolution
	err   error
}

func (d *taker) Resolve(_ sandbox.ID, name string) Resolution {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hosts[name]
}

func (d *taker) Divert(_ context.Context, f *Flow, guest net.Conn) (bool, error) {
	d.mu.Lock()
	d.seen = append(d.seen, *f)
	takes, err := d.hosts[f.Host] == ResolveHere, d.err
	d.mu.Unlock()
	if err != nil || !takes {
		return false, err
	}
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		io.Copy(there, there)
	}()
	f.Pass(guest, here)
	return true, nil
}

func (d *taker) last(t *testing.T) Flow {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.seen) == 0 {
		t.Fatal("it was asked nothing")
	}
	return d.seen[len(d.seen)-1]
}

func diverting(t *testing.T, p sandbox.Policy) (*world, *taker) {
	t.Helper()
	d := &taker{hosts: map[string]Resolution{"here.example": ResolveHere, "there.example": ResolveHere, "secret.example": ResolveRefused}}
	p.Divert = "door"
	w := newWorld(t, &p, func(c *Config) { c.Diverters = map[string]Diverter{"door": d} })
	w.dns.set("A there.example.", site)
	w.dns.set("A plain.example.", site)
	w.dns.set("A secret.example.", site)
	for _, port := range []string{":80", ":443", ":8080"} {
		w.listenTCP(site+port, echo)
	}
	return w, d
}

func getOf(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }

func TestDiverted(t *testing.T) {
	w, d := diverting(t, sandbox.Policy{Profile: sandbox.ProfileOpen})
	for address, host := range map[string]string{
		site + ":80":         "here.example",
		"10.1.2.3:80":        "here.example", // where nothing could ever be reached
		"198.18.7.7:8080":    "here.example",
		"169.254.169.254:80": "there.example",
	} {
		if err := says(w.mustDial(address), getOf(host)); err != nil {
			t.Errorf("%s at %s: %v", host, address, err)
		}
		if f := d.last(t); f.Host != host || f.TLS || !f.HTTP || f.Addr != netip.MustParseAddrPort(address) || f.Sandbox != w.id {
			t.Errorf("it was given %+v", f)
		}
	}
	if err := says(w.mustDial(site+":443"), clientHello(t, "here.example")); err != nil {
		t.Error(err)
	}
	if f := d.last(t); f.Host != "here.example" || !f.TLS || f.HTTP {
		t.Errorf("it was given %+v", f)
	}
	// A sandbox whose policy does not name it is none of its business.
	before := len(d.seen)
	w.apply(&sandbox.Policy{Profile: sandbox.ProfileOpen})
	if err := says(w.mustDial(site+":80"), getOf("here.example")); err != nil {
		t.Error(err)
	}
	if len(d.seen) != before {
		t.Error("it was asked about another policy's connection")
	}
}

func TestDeclined(t *testing.T) {
	w, d := diverting(t, sandbox.Policy{Profile: sandbox.ProfileOpen, Deny: []sandbox.Rule{{Domains: []string{"denied.example"}}}})
	w.ask("plain.example", dns.TypeA)
	for _, port := range []string{":80", ":8080"} {
		if err := says(w.mustDial(site+port), getOf("plain.example")); err != nil {
			t.Errorf("%s: %v", port, err)
		}
		if f := d.last(t); f.Host != "plain.example" {
			t.Errorf("it was given %+v", f)
		}
	}
	if err := says(w.mustDial(site+":443"), clientHello(t, "plain.example")); err != nil {
		t.Error(err)
	}
	refused := func(address, first string) {
		t.Helper()
		c, err := w.connect(address)
		if err != nil {
			return
		}
		defer c.Close()
		if err := says(c, first); err == nil {
			t.Errorf("%s was reached with %.30q", address, first)
		}
	}
	refused("10.1.2.3:80", getOf("plain.example"))
	refused("198.18.0.1:80", getOf("nowhere.example"))
	refused(site+":80", getOf("denied.example"))
	d.mu.Lock()
	d.err = errors.New("the door is shut")
	d.mu.Unlock()
	refused(site+":80", getOf("plain.example"))
	w.notes.want(t, "what the diverter has refused", func(e sandbox.AuditEntry) bool {
		return e.Verdict == sandbox.VerdictDenied && e.Rule == ruleDivert && strings.Contains(e.Reason, "the door is shut")
	})
}

// TestDivertedServerSpeaksFirst passes what no client's first bytes announce.
func TestDivertedServerSpeaksFirst(t *testing.T) {
	w, _ := diverting(t, sandbox.Policy{Profile: sandbox.ProfileOpen})
	w.listenTCP(site+":22", func(c net.Conn) { io.WriteString(c, "SSH-2.0-x\r\n"); c.Read(make([]byte, 1)) })
	b := make([]byte, 3)
	if _, err := io.ReadFull(w.mustDial(site+":22"), b); err != nil || string(b) != "SSH" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestDivertedNames(t *testing.T) {
	w, _ := diverting(t, sandbox.Policy{Profile: sandbox.ProfileOpen})
	address := func(name string) string {
		t.Helper()
		m := w.ask(name, dns.TypeA)
		for _, rr := range m.Answer {
			if a, ok := rr.(*dns.A); ok {
				return a.A.String()
			}
		}
		return dns.RcodeToString[m.Rcode]
	}
	if got := address("there.example"); got != site {
		t.Errorf("a name that there is: %s", got)
	}
	got, err := netip.ParseAddr(address("here.example"))
	if err != nil || !nowhere.Contains(got) {
		t.Errorf("a name that only the diverter knows: %s, %v", got, err)
	}
	if again := address("here.example"); again != got.String() {
		t.Errorf("asked again: %s, it was %s", again, got)
	}
	if m := w.ask("here.example", dns.TypeAAAA); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
		t.Errorf("its other address: %v", m)
	}
	if got := address("secret.example"); got != "NXDOMAIN" {
		t.Errorf("a name that is kept back: %s", got)
	}
	w.apply(&sandbox.Policy{Profile: sandbox.ProfileNone, Divert: "door"})
	if got, err := netip.ParseAddr(address("here.example")); err != nil || !nowhere.Contains(got) {
		t.Errorf("under the profile none: %s, %v", got, err)
	}
	if got := address("plain.example"); got != "NXDOMAIN" {
		t.Errorf("another name under the profile none: %s", got)
	}
}

func TestDiverterMustBeThere(t *testing.T) {
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sandbox.Sandbox{ID: sandbox.NewID(), Policy: &sandbox.Policy{Profile: sandbox.ProfileOpen, Divert: "gone"}}
	if err := g.Apply(t.Context(), s); sandbox.KindOf(err) != sandbox.Unsupported {
		t.Errorf("a policy that names what is not there: %v", err)
	}
}
