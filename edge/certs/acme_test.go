package certs_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/berth-dev/berth/edge/certs"
)

// pebble is an ACME authority on this machine, for which every name is this
// machine.
type pebble struct {
	directory string
	rootsFile string // that it is trusted by
	manage    string
	http      *http.Client
}

// buildPebble builds the authority, which is a module of its own.
func buildPebble(t *testing.T) string {
	t.Helper()
	module, err := filepath.Abs(filepath.Join("..", "..", "tools", "pebble"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pebble")
	cmd := exec.Command("go", "build", "-o", file, "github.com/letsencrypt/pebble/v2/cmd/pebble")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build pebble: %v\n%s", err, out)
	}
	return file
}

func startPebble(t *testing.T, httpPort, tlsPort int) *pebble {
	t.Helper()
	dir := t.TempDir()
	roots := selfSigned(t, dir)
	ports := freePorts(t, 2)
	config := map[string]any{"pebble": map[string]any{
		"listenAddress": "127.0.0.1:" + ports[0], "managementListenAddress": "127.0.0.1:" + ports[1],
		"certificate": filepath.Join(dir, "cert.pem"), "privateKey": filepath.Join(dir, "key.pem"),
		"httpPort": httpPort, "tlsPort": tlsPort, "keyAlgorithm": "ecdsa",
		"retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles":   map[string]any{"default": map[string]any{"description": "as usual", "validityPeriod": 7776000}},
	}}
	b, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(buildPebble(t), "-config", file, "-strict", "-dnsserver", startDNS(t))
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("pebble says\n%s", b)
		}
	})
	p := &pebble{directory: "https://127.0.0.1:" + ports[0] + "/dir", manage: "https://127.0.0.1:" + ports[1], rootsFile: filepath.Join(dir, "cert.pem"),
		http: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}}
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		resp, err := p.http.Get(p.directory)
		if err == nil {
			resp.Body.Close()
			return p
		}
		if time.Now().After(end) {
			t.Fatalf("pebble does not answer: %v", err)
		}
	}
}

// root is what the authority's certificates are trusted by; it is another at each
// start.
func (p *pebble) root(t *testing.T) *x509.CertPool {
	t.Helper()
	resp, err := p.http.Get(p.manage + "/roots/0")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(b) {
		t.Fatalf("the root: %v in %q", err, b)
	}
	return pool
}

// startDNS answers that every name is this machine.
func startDNS(t *testing.T) string {
	t.Helper()
	l := listen(t) // the authority asks over TCP
	s := &dns.Server{Listener: l, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		for _, one := range q.Question {
			if one.Qtype == dns.TypeA {
				m.Answer = append(m.Answer, &dns.A{Hdr: dns.RR_Header{Name: one.Name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 1}, A: net.IPv4(127, 0, 0, 1)})
			}
		}
		w.WriteMsg(m)
	})}
	go s.ActivateAndServe()
	t.Cleanup(func() { s.Shutdown() })
	return l.Addr().String()
}

// selfSigned writes cert.pem and key.pem for this machine.
func selfSigned(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	own, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(own)
	return pool
}

func freePorts(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		_, port, _ := net.SplitHostPort(l.Addr().String())
		all = append(all, port)
	}
	return all
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestACME: a domain that was proved gets a certificate at its first visit, and no
// other name does; what was got is kept.
func TestACME(t *testing.T) {
	plain, secure := listen(t), listen(t)
	authority := startPebble(t, plain.Addr().(*net.TCPAddr).Port, secure.Addr().(*net.TCPAddr).Port)
	dir := t.TempDir()
	var log logged
	a, err := certs.NewACME(certs.ACMEConfig{Dir: filepath.Join(dir, "acme"), Directory: authority.directory, Roots: authority.rootsFile,
		HTTP: plain.Addr(), HTTPS: secure.Addr(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Allowed: func(_ context.Context, name string) error {
			if name != "app.example.com" {
				return errors.New("not proved")
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	own, _ := open(t, dir, domain, time.Now())
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello at ", r.Host) })
	go http.Serve(plain, a.Challenges(hello))
	go http.Serve(tls.NewListener(secure, certs.TLS(certs.Config{Domain: domain, Own: own, Public: a})), hello)

	visit := func(name string) (string, error) {
		c := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: authority.root(t)},
			TLSHandshakeTimeout: time.Minute,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", secure.Addr().String())
			}}}
		resp, err := c.Get("https://" + name + "/")
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return string(b), err
	}
	for range 2 {
		if b, err := visit("app.example.com"); err != nil || b != "hello at app.example.com" {
			t.Fatalf("%q %v\n%s", b, err, log.String())
		}
	}
	if _, err := visit("other.example.com"); err == nil {
		t.Error("a domain that nobody proved gets a certificate")
	}
	kept, err := filepath.Glob(filepath.Join(dir, "acme", "certificates", "*", "*", "*.key"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept are %v, %v", kept, err)
	}
	if info, err := os.Stat(kept[0]); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("its key is readable by others: %v %v", info, err)
	}
}
