package intercept

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/record/bolt"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/secret"
)

const (
	host  = "api.example.com"
	token = "ghp_s3cr3t+/value=="
)

// rig is a proxy between a client that trusts a sandbox's authority alone and a
// server whose certificate another authority signs.
type rig struct {
	t      testing.TB
	p      *Proxy
	vault  *secret.Vault
	grants *secret.Grants
	values *secret.Values
	id     sandbox.ID
	roots  *authority // of the servers
	server *httptest.Server
	door   net.Listener // where the sandbox's connections arrive

	mu      sync.Mutex
	policy  sandbox.Policy
	judge   func(method, host, path string) Judgement
	entries []sandbox.AuditEntry
	dialled int
	flowTLS bool
	flow    func(*Flow)
	served  sync.WaitGroup
}

func newRig(t testing.TB, h http.Handler, rules ...sandbox.Inject) *rig {
	return newRigWith(t, h, Handlers{}, rules...)
}

func newRigWith(t testing.TB, h http.Handler, handlers Handlers, rules ...sandbox.Inject) *rig {
	t.Helper()
	records, err := bolt.Open(filepath.Join(t.TempDir(), "records.db"))
	must(t, err)
	t.Cleanup(func() { records.Close() })
	sealer, err := secret.NewSealer(bytes.Repeat([]byte{7}, secret.KeySize))
	must(t, err)
	r := &rig{t: t, vault: secret.NewVault(records, sealer, nil), grants: secret.NewGrants(records), values: secret.NewValues(records, sealer), id: sandbox.NewID(), flowTLS: true}
	r.policy = sandbox.Policy{Profile: sandbox.ProfileOpen, Inject: rules}
	must(t, r.policy.Check())
	r.judge = func(string, string, string) Judgement { return Judgement{Allowed: true, Rule: "profile open"} }
	r.put("k", token)
	r.roots, err = newAuthority(sandbox.NewID(), time.Now())
	must(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(r.roots.cert)
	r.p, err = New(Config{Secrets: r.vault, Grants: r.grants, Values: r.values, Records: records, Sealer: sealer, Roots: pool, Handlers: handlers})
	must(t, err)
	t.Cleanup(func() { must(t, r.p.Close()) })
	for _, rule := range rules {
		must(t, r.grants.Grant(t.Context(), r.id, rule.Secrets()...))
	}
	r.server = httptest.NewUnstartedServer(h)
	r.server.EnableHTTP2 = true
	r.server.TLS = &tls.Config{Certificates: []tls.Certificate{r.certificate(host)}, NextProtos: []string{"h2", "http/1.1"}}
	r.server.StartTLS()
	t.Cleanup(r.server.Close)
	r.door, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); r.door.Close(); r.served.Wait() })
	r.served.Go(func() { r.accept(ctx) })
	return r
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// certificate is a server's, by the authority that the proxy trusts.
func (r *rig) certificate(name string) tls.Certificate {
	r.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(r.t, err)
	leaf, err := certify(&x509.Certificate{SerialNumber: serial(), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}, r.roots.cert, key.Public(), r.roots.key)
	must(r.t, err)
	return tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}
}

func (r *rig) put(name, value string) {
	r.t.Helper()
	_, err := r.vault.Put(r.t.Context(), sandbox.MainAccount, name, sandbox.SecretValue(value))
	must(r.t, err)
}

func (r *rig) accept(ctx context.Context) {
	for {
		c, err := r.door.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		overTLS, change := r.flowTLS, r.flow
		r.mu.Unlock()
		f := &Flow{
			Sandbox: r.id, Name: "box", Account: sandbox.MainAccount, Host: host, TLS: overTLS,
			Addr: netip.MustParseAddrPort("93.184.216.34:443"),
			Dial: func(ctx context.Context) (net.Conn, error) {
				r.mu.Lock()
				r.dialled++
				r.mu.Unlock()
				return new(net.Dialer).DialContext(ctx, "tcp", r.server.Listener.Addr().String())
			},
			Policy: func() sandbox.Policy { r.mu.Lock(); defer r.mu.Unlock(); return r.policy },
			Judge:  func(m, h, p string) Judgement { return r.judging()(m, h, p) },
			Note:   func(e sandbox.AuditEntry) { r.mu.Lock(); defer r.mu.Unlock(); r.entries = append(r.entries, e) },
		}
		if change != nil {
			change(f)
		}
		r.served.Go(func() {
			defer c.Close()
			r.p.Serve(ctx, f, c)
		})
	}
}

// set changes the rig between connections.
func (r *rig) set(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *rig) judging() func(method, host, path string) Judgement {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.judge
}

// dials is how often the server was dialled.
func (r *rig) dials() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dialled
}

// tlsConfig is what a program in the sandbox trusts.
func (r *rig) tlsConfig(name string, protocols ...string) *tls.Config {
	r.t.Helper()
	pem, err := r.p.Certificate(r.t.Context(), r.id)
	must(r.t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		r.t.Fatal("the certificate is none")
	}
	return &tls.Config{RootCAs: pool, ServerName: name, NextProtos: protocols}
}

// client speaks to the proxy as a program in the sandbox would to the host.
func (r *rig) client(http2 bool) *http.Client {
	protocols := []string{"http/1.1"}
	if http2 {
		protocols = []string{"h2"}
	}
	tr := &http.Transport{TLSClientConfig: r.tlsConfig(host, protocols...), ForceAttemptHTTP2: http2, ExpectContinueTimeout: 5 * time.Second,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", r.door.Addr().String())
		}}
	r.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// request sends one request and returns the status and the body.
func (r *rig) request(c *http.Client, req *http.Request) (*http.Response, string) {
	r.t.Helper()
	resp, err := c.Do(req)
	must(r.t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must(r.t, err)
	return resp, string(b)
}

func (r *rig) get(path string) (*http.Response, string) {
	r.t.Helper()
	return r.request(r.client(false), newRequest(r.t, "GET", "https://"+host+path, nil))
}

func newRequest(t testing.TB, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	must(t, err)
	return req
}

// last is the nth entry of the audit, from 1. It is written when a request has ended,
// a moment after its client knows: of several requests each is waited for before the
// next, or their entries may stand in another order.
func (r *rig) last(n int) sandbox.AuditEntry {
	r.t.Helper()
	for range 6000 {
		r.mu.Lock()
		if len(r.entries) >= n {
			e := r.entries[n-1]
			r.mu.Unlock()
			return e
		}
		r.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("no entry %d in the audit", n)
	return sandbox.AuditEntry{}
}

// echo answers with what it got.
func echo(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Auth", req.Header.Get("Authorization"))
	w.Header().Set("X-Query", req.URL.RawQuery)
	w.Header().Set("X-Proto", req.Proto)
	w.Write(body)
}

func bearer(mods ...func(*sandbox.Inject)) sandbox.Inject {
	rule := sandbox.Inject{Host: host, Secret: "k", Header: map[string]string{"Authorization": "Bearer ${secret}"}}
	for _, m := range mods {
		m(&rule)
	}
	return rule
}
