package edge_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/berth-dev/berth/edge"
	"github.com/berth-dev/berth/sandbox"
)

// at asks for the page of a host.
func (h *house) at(host string, headers ...string) (int, string) {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), "GET", "http://"+host+"/", nil)
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := h.client().Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestDomain: a domain stands for its port once it is proved, to whom the port is
// open, until it is given up.
func TestDomain(t *testing.T) {
	h := open(t, edge.Config{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello at "+r.Host) })
	other := inside(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "another") })
	id := h.create()
	const name = "app.proved.test"
	add := func(ctx context.Context, name string, port int) {
		t.Helper()
		if _, err := h.s.Engine.AddDomain(ctx, sandbox.DomainRequest{Name: name, Sandbox: string(id), Port: port}); err != nil {
			t.Fatal(err)
		}
	}
	add(h.ctx, name, port)
	add(h.ctx, "other.example.com", port)
	h.publish(id, port)
	if status, body := h.at(name); status == 200 {
		t.Errorf("before it is proved: %s", body)
	}
	if _, err := h.s.Engine.VerifyDomain(h.ctx, name); err != nil {
		t.Fatal(err)
	}
	if _, err := h.s.Engine.VerifyDomain(h.ctx, "other.example.com"); sandbox.KindOf(err) != sandbox.Forbidden {
		t.Errorf("without a proof: %v", err)
	}
	if status, body := h.at("App.Proved.Test:8443"); status != 200 || body != "hello at App.Proved.Test:8443" {
		t.Errorf("proved: %d %s", status, body)
	}
	add(h.ctx, name, other) // stays proved
	if status, _ := h.at(name); status != 404 {
		t.Errorf("a private port: %d", status)
	}
	token := h.share(id, other, sandbox.ShareRequest{}).Token
	if status, body := h.at(name, sandbox.HeaderToken, token); status != 200 || body != "another" {
		t.Errorf("with a token: %d %s", status, body)
	}

	// Who proves it later has it, and takes nothing away by giving up a claim.
	stranger := sandbox.WithCaller(t.Context(), sandbox.Caller{Account: "stranger", Scopes: []sandbox.Scope{sandbox.ScopeAdmin}})
	if _, err := h.s.Engine.Domain(stranger, name); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another account sees it: %v", err)
	}
	if err := h.s.Engine.RemoveDomain(stranger, name); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another account removes it: %v", err)
	}
	if _, err := h.s.Engine.AddDomain(stranger, sandbox.DomainRequest{Name: name, Sandbox: string(id), Port: port}); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("another account points one at a sandbox that is not its own: %v", err)
	}
	if err := h.s.Engine.RemoveDomain(h.ctx, name); err != nil {
		t.Fatal(err)
	}
	if status, body := h.at(name, sandbox.HeaderToken, token); status == 200 {
		t.Errorf("given up: %s", body)
	}
}

// TestProver looks at records and pages as they are now, and reaches public
// addresses alone.
func TestProver(t *testing.T) {
	page := "  berth-verify=abc\n"
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "/proof", http.StatusFound)
			return
		}
		io.WriteString(w, page)
	}))
	defer site.Close()
	_, port, _ := net.SplitHostPort(site.Listener.Addr().String())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	records := &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		name := q.Question[0].Name
		switch {
		case q.Question[0].Qtype == dns.TypeTXT && name == "_berth-challenge.txt.example.com.":
			m.Answer = append(m.Answer, &dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{"berth-verify=abc"}})
		case q.Question[0].Qtype == dns.TypeA && strings.HasPrefix(name, "page."):
			m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET}, A: net.IPv4(127, 0, 0, 1)})
		case q.Question[0].Qtype == dns.TypeTXT:
			m.Rcode = dns.RcodeNameError
		}
		w.WriteMsg(m)
	})}
	go records.ActivateAndServe()
	defer records.Shutdown()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
	}}
	anywhere := &edge.Prover{Resolver: resolver, Allowed: func(netip.Addr) bool { return true }}
	careful := &edge.Prover{Resolver: resolver}
	domain := func(name, path, value string) sandbox.Domain {
		return sandbox.Domain{Name: name, Proof: sandbox.DomainProof{TXTName: "_berth-challenge." + name, TXTValue: value, Path: path, Body: value}}
	}
	for _, c := range []struct {
		what   string
		p      *edge.Prover
		d      sandbox.Domain
		proved bool
	}{
		{"a record", careful, domain("txt.example.com", "/proof", "berth-verify=abc"), true},
		{"another value", careful, domain("txt.example.com", "/proof", "berth-verify=abd"), false},
		{"a page", anywhere, domain("page.example.com:"+port, "/proof", "berth-verify=abc"), true},
		{"another text", anywhere, domain("page.example.com:"+port, "/proof", "berth-verify=abd"), false},
		{"a redirect", anywhere, domain("page.example.com:"+port, "/redirect", "berth-verify=abc"), false},
		{"a page of this machine's", careful, domain("page.example.com:"+port, "/proof", "berth-verify=abc"), false},
		{"nothing", careful, domain("none.example.com", "/proof", "berth-verify=abc"), false},
	} {
		err := c.p.Prove(t.Context(), c.d)
		if (err == nil) != c.proved || err != nil && (sandbox.KindOf(err) != sandbox.Forbidden || sandbox.HintOf(err) == "") {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}
