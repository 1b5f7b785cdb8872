// Package acmetest runs a real ACME authority for tests, with a name server for which
// every name is one address of this machine.
package acmetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// The ports of the address of names, to which the authority comes with its questions.
const (
	HTTPPort  = 20080
	HTTPSPort = 20443
)

// What else listens at that address.
const (
	dnsPort       = 20053
	directoryPort = 20000
	managePort    = 20001
)

// Lifetime is how long a certificate is valid. It is so short that each handshake has it
// renewed.
const Lifetime = 20 * time.Minute

// patience bounds the authority's start.
const patience = time.Minute

// Authority is one authority, and the names that it knows.
type Authority struct {
	Address   string // of every name: an address of the loopback that nobody else has
	Directory string // URL
	RootsFile string // that the authority itself is trusted by, in PEM
	Resolver  string // address and port of the name server

	http   *http.Client
	manage string
	end    func()

	mu   sync.Mutex
	text map[string]string // TXT records, by name
}

// Start runs an authority until Stop, or the test's end.
func Start(t testing.TB) *Authority {
	t.Helper()
	at := loopback(t)
	a := &Authority{Address: at.String(), text: map[string]string{}}
	a.Directory = "https://" + a.At(directoryPort) + "/dir"
	a.manage = "https://" + a.At(managePort)
	a.Resolver = a.At(dnsPort)
	a.answer(t)
	dir := t.TempDir()
	a.RootsFile = filepath.Join(dir, "cert.pem")
	a.http = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: selfSigned(t, dir, at)}, DisableKeepAlives: true}}
	a.run(t, dir)
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		resp, err := a.http.Get(a.Directory)
		if err == nil {
			resp.Body.Close()
			return a
		}
		if time.Now().After(end) {
			t.Fatalf("the authority does not answer: %v", err)
		}
	}
}

// At is a port of the address of names.
func (a *Authority) At(port int) string { return net.JoinHostPort(a.Address, strconv.Itoa(port)) }

// Stop ends the authority. Its names go on.
func (a *Authority) Stop() { a.end() }

// SetTXT gives a name a TXT record.
func (a *Authority) SetTXT(name, value string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.text[dns.Fqdn(name)] = value
}

// Root is what the authority's certificates are trusted by; it is another at each start.
func (a *Authority) Root(t testing.TB) *x509.CertPool {
	t.Helper()
	resp, err := a.http.Get(a.manage + "/roots/0")
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

// loopback is an address of the loopback that only this test has, with all its ports.
func loopback(t testing.TB) net.IP {
	t.Helper()
	var b [3]byte
	rand.Read(b[:])
	return net.IPv4(127, 1|b[0], b[1], 1|b[2])
}

// run starts the authority, which is a module of its own.
func (a *Authority) run(t testing.TB, dir string) {
	t.Helper()
	config := map[string]any{"pebble": map[string]any{
		"listenAddress": a.At(directoryPort), "managementListenAddress": a.At(managePort),
		"certificate": a.RootsFile, "privateKey": filepath.Join(dir, "key.pem"),
		"httpPort": HTTPPort, "tlsPort": HTTPSPort, "keyAlgorithm": "ecdsa",
		"retryAfter": map[string]int{"authz": 1, "order": 1},
		"profiles":   map[string]any{"default": map[string]any{"description": "as usual", "validityPeriod": int(Lifetime.Seconds())}},
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
	cmd := exec.Command(build(t, dir), "-config", file, "-strict", "-dnsserver", a.Resolver)
	cmd.Env = append(os.Environ(), "PEBBLE_VA_NOSLEEP=1", "PEBBLE_WFE_NONCEREJECT=0")
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a.end = sync.OnceFunc(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	t.Cleanup(func() {
		a.end()
		if t.Failed() {
			b, _ := os.ReadFile(log.Name())
			t.Logf("the authority says\n%s", b)
		}
	})
}

func build(t testing.TB, dir string) (file string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	file = filepath.Join(dir, "pebble")
	cmd := exec.Command("go", "build", "-o", file, "github.com/letsencrypt/pebble/v2/cmd/pebble")
	cmd.Dir = filepath.Join(filepath.Dir(here), "../../../tools/pebble")
	cmd.Env = append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the authority: %v\n%s", err, out)
	}
	return file
}

// answer serves names over UDP, and over TCP, by which the authority asks.
func (a *Authority) answer(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", a.Resolver)
	if err != nil {
		t.Fatal(err)
	}
	p, err := net.ListenPacket("udp", a.Resolver)
	if err != nil {
		l.Close()
		t.Fatal(err)
	}
	for _, s := range []*dns.Server{{Listener: l}, {PacketConn: p}} {
		s.Handler = dns.HandlerFunc(a.question)
		go s.ActivateAndServe() // ends with what it listens on
	}
	t.Cleanup(func() { l.Close(); p.Close() })
}

func (a *Authority) question(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	for _, one := range q.Question {
		head := dns.RR_Header{Name: one.Name, Rrtype: one.Qtype, Class: dns.ClassINET, Ttl: 1}
		a.mu.Lock()
		value, ok := a.text[one.Name]
		a.mu.Unlock()
		switch {
		case one.Qtype == dns.TypeA:
			m.Answer = append(m.Answer, &dns.A{Hdr: head, A: net.ParseIP(a.Address)})
		case one.Qtype == dns.TypeTXT && ok:
			m.Answer = append(m.Answer, &dns.TXT{Hdr: head, Txt: []string{value}})
		}
	}
	w.WriteMsg(m) // who got none asks again
}

// selfSigned writes cert.pem and key.pem for an address.
func selfSigned(t testing.TB, dir string, at net.IP) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{at},
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
			t.Fatal(fmt.Errorf("write %s: %w", name, err))
		}
	}
	own, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(own)
	return pool
}
