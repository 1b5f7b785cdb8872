package netgw

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/berth-dev/berth/sandbox"
)

// looker is an interceptor that notes what it was given and passes bytes on.
type looker struct {
	mu    sync.Mutex
	flows []Flow
	check error
}

func (l *looker) Check(*sandbox.Sandbox) error { return l.check }

func (l *looker) Intercept(ctx context.Context, f *Flow, guest net.Conn) error {
	l.mu.Lock()
	l.flows = append(l.flows, *f)
	l.mu.Unlock()
	up, err := f.Dial(ctx)
	if err != nil {
		return err
	}
	defer up.Close()
	go func() {
		io.Copy(guest, up)
		guest.Close()
	}()
	io.Copy(up, guest)
	return nil
}

func (l *looker) last() Flow {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.flows) == 0 {
		return Flow{}
	}
	return l.flows[len(l.flows)-1]
}

func looking(t *testing.T, p *sandbox.Policy) (*world, *looker) {
	t.Helper()
	l := &looker{}
	w := newWorld(t, p, func(c *Config) { c.Intercept = l })
	w.dns.set("A api.example.", site)
	w.dns.set("A plain.example.", site)
	w.listenTCP(site+":443", echo)
	w.listenTCP(site+":80", echo)
	w.listenTCP(otherSite+":443", func(c net.Conn) { c.Read(make([]byte, 1)); io.WriteString(c, "this is the wrong place") })
	return w, l
}

func TestInspectedHostsAreHandedOver(t *testing.T) {
	w, l := looking(t, &sandbox.Policy{Profile: sandbox.ProfileOpen, Allow: []sandbox.Rule{{Domains: []string{"api.example"}, Methods: []string{"GET"}}}})
	w.ask("api.example", dns.TypeA)
	first := clientHello(t, "api.example")
	if err := says(w.mustDial(site+":443"), first); err != nil {
		t.Fatal(err)
	}
	if f := l.last(); f.Host != "api.example" || !f.TLS || f.Addr.String() != site+":443" || f.Sandbox != w.id || f.Account != "main" {
		t.Errorf("it was given %+v", f)
	}
	// The host decides where a connection goes, not the address that was dialled.
	if err := says(w.mustDial(otherSite+":443"), first); err != nil {
		t.Errorf("dialled by a wrong address: %v", err)
	}
	request := "GET /x HTTP/1.1\r\nHost: API.example:80\r\n\r\n"
	if err := says(w.mustDial(site+":80"), request); err != nil {
		t.Fatal(err)
	}
	if f := l.last(); f.Host != "api.example" || f.TLS {
		t.Errorf("it was given %+v", f)
	}
	before := len(l.flows)
	if err := says(w.mustDial(site+":443"), clientHello(t, "other.example")); err != nil {
		t.Error(err)
	}
	if len(l.flows) != before {
		t.Error("what is not inspected was handed over")
	}
}

// TestPlainHTTPByNameIsHandedOver looks at plain requests where only the name of
// the host allows them: the second may name another.
func TestPlainHTTPByNameIsHandedOver(t *testing.T) {
	w, l := looking(t, allowing("plain.example"))
	w.ask("plain.example", dns.TypeA)
	if err := says(w.mustDial(site+":80"), "GET / HTTP/1.1\r\nHost: plain.example\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if f := l.last(); f.Host != "plain.example" {
		t.Errorf("it was given %+v", f)
	}
	if err := says(w.mustDial(site+":443"), clientHello(t, "plain.example")); err != nil {
		t.Fatal(err)
	}
	if len(l.flows) != 1 {
		t.Error("TLS that is not inspected was handed over")
	}
}

func TestRequestsAreJudged(t *testing.T) {
	w, l := looking(t, &sandbox.Policy{Profile: sandbox.ProfileOpen,
		Allow: []sandbox.Rule{{Name: "models", Domains: []string{"api.example"}, Methods: []string{"GET", "POST"}, Paths: []string{"/v1/*"}}},
		Deny:  []sandbox.Rule{{Name: "admin", Domains: []string{"api.example"}, Paths: []string{"/v1/admin*"}}}})
	c := w.mustDial(site + ":443")
	if err := says(c, clientHello(t, "api.example")); err != nil {
		t.Fatal(err)
	}
	f := l.last()
	for _, r := range []struct {
		method, path string
		want         bool
		rule         string
	}{
		{"GET", "/v1/models", true, "models"},
		{"DELETE", "/v1/models", false, ""},
		{"GET", "/v2/models", false, ""},
		{"GET", "/v1/admin/keys", false, "admin"},
		{"GET", "/v1/../v1/admin", false, "admin"},
		{"GET", "//v1/admin", false, "admin"},
		{"GET", "/v1/%2e%2e/admin", false, "admin"},
	} {
		if j := f.Request(r.method, "api.example", r.path); j.Allowed != r.want || j.Rule != r.rule || !j.Allowed && j.Reason == "" {
			t.Errorf("%s %s: %+v", r.method, r.path, j)
		}
	}
	if j := f.Request("GET", "elsewhere.example", "/"); !j.Allowed || j.Rule != profileOpen {
		t.Errorf("another host: %+v", j)
	}
	f.Note(sandbox.AuditEntry{Verdict: sandbox.VerdictAllowed, Method: "GET", Path: "/v1/models", Credential: "token"})
	w.notes.want(t, "the request", func(e sandbox.AuditEntry) bool {
		return e.Kind == sandbox.AuditRequest && e.Credential == "token" && e.Host == "api.example" && e.Address == site && e.Sandbox == w.id
	})
	// A connection whose requests are not looked at any more is cut, and the
	// other way round.
	w.apply(&sandbox.Policy{Profile: sandbox.ProfileOpen})
	c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadAll(c); err == nil {
		t.Error("a connection stayed with the interceptor of a policy that is gone")
	}
}

// TestWhatCannotBeEnforcedIsRefused leaves the policy from before in force.
func TestWhatCannotBeEnforcedIsRefused(t *testing.T) {
	w := newWorld(t, &sandbox.Policy{Profile: sandbox.ProfileNone}, nil)
	w.listenTCP(site+":80", echo)
	for what, c := range map[string]struct {
		p    sandbox.Policy
		kind sandbox.Kind
	}{
		"no interceptor":  {sandbox.Policy{Profile: sandbox.ProfileOpen, Allow: []sandbox.Rule{{Domains: []string{"a.io"}, Inspect: true}}}, sandbox.Unsupported},
		"a closed net":    {sandbox.Policy{Profile: sandbox.ProfileOpen, Allow: []sandbox.Rule{{CIDRs: []string{"10.1.0.0/16"}}}}, sandbox.Forbidden},
		"a closed addr":   {sandbox.Policy{Profile: sandbox.ProfileOpen, Allow: []sandbox.Rule{{CIDRs: []string{"169.254.169.254"}}}}, sandbox.Forbidden},
		"a closed v6 net": {sandbox.Policy{Profile: sandbox.ProfileOpen, Allow: []sandbox.Rule{{CIDRs: []string{"fd00::/8"}}}}, sandbox.Forbidden},
		"nonsense":        {sandbox.Policy{Profile: "x"}, sandbox.Invalid},
	} {
		s := &sandbox.Sandbox{ID: w.id, Policy: &c.p}
		if err := w.gateway.Check(t.Context(), s); sandbox.KindOf(err) != c.kind {
			t.Errorf("%s: %v", what, err)
		}
		if err := w.gateway.Apply(t.Context(), s); sandbox.KindOf(err) != c.kind || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
		w.mustRefuse(site+":80", "")
	}
}

// FuzzListen wants what is told of first bytes to stay when more come, and no
// host that a server would not have read.
func FuzzListen(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"), 7)
	f.Add([]byte("\x16\x03\x01\x00\x05hello"), 3)
	f.Add([]byte("SSH-2.0-OpenSSH\r\n"), 4)
	f.Fuzz(func(t *testing.T, b []byte, at int) {
		if len(b) > maxPeek {
			return
		}
		s, host := listen(b)
		if strings.ContainsAny(host, "\r\n \x00") {
			t.Errorf("%q names the host %q", b, host)
		}
		if at < 0 || at > len(b) {
			return
		}
		if before, name := listen(b[:at]); before != unclear && before != malformed && (before != s || name != host) {
			t.Errorf("%q is %d %q, all of %q is %d %q", b[:at], before, name, b, s, host)
		}
	})
}

// FuzzInspect wants no packet to pass that is not the sandbox's own.
func FuzzInspect(f *testing.F) {
	f.Add(forgedSYN(GuestAddr.String(), site, 12288), false)
	f.Add(forgedSYN("8.8.8.8", site, 12288), true)
	f.Fuzz(func(t *testing.T, b []byte, six bool) {
		if six {
			if r, _ := inspectV6(b); r == permit && string(b[8:24]) != string(GuestAddr6.AsSlice()) && b[6] != 58 {
				t.Errorf("%x passes", b)
			}
			return
		}
		if r, _ := inspectV4(b); r == permit && string(b[12:16]) != string(GuestAddr.AsSlice()) {
			t.Errorf("%x passes", b)
		}
	})
}

func TestHostsOfInjectRules(t *testing.T) {
	var in injects
	in.add(&sandbox.Inject{Host: "*.example.com", Except: []string{"api.example.com", "*.dev.example.com"}})
	in.add(&sandbox.Inject{Host: "x.dev.example.com"})
	in.add(&sandbox.Inject{Host: "*.org"})
	for name, want := range map[string]bool{
		"www.example.com": true, "example.com": false, "api.example.com": false, "a.api.example.com": true,
		"dev.example.com": true, "x.dev.example.com": true, "y.dev.example.com": false, "example.org": true, "org": false,
	} {
		if in.match(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
