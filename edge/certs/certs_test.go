package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-dev/berth/edge/certs"
	"github.com/berth-dev/berth/sandbox"
)

const domain = "berth.test"

func open(t *testing.T, dir, domain string, now time.Time) (*certs.Authority, bool) {
	t.Helper()
	a, made, err := certs.OpenAuthority(dir, domain, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	return a, made
}

func read(t *testing.T, dir string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, certs.AuthorityFile))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// verify checks what is served for a name against what the authority's file says.
func verify(t *testing.T, dir string, c *tls.Certificate, name string, at time.Time) error {
	t.Helper()
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(read(t, dir)) {
		t.Fatal("the authority's file holds no certificate")
	}
	_, err := c.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots, CurrentTime: at})
	return err
}

func TestAuthority(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	a, made := open(t, dir, domain, now)
	if info, err := os.Stat(filepath.Join(dir, "ca-key.pem")); !made || err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key: %v %v", info, err)
	}
	c, err := a.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{domain: true, "8080-aaaaaaaaaaaaaaaaaaaa." + domain: true, "a.b." + domain: false, "example.com": false, "127.0.0.1": false} {
		if err := verify(t, dir, c, name, now); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if again, _ := a.Certificate(); again != c {
		t.Error("each visitor gets a certificate of his own")
	}
	first := read(t, dir)
	if b, made := open(t, dir, domain, now); made || !bytes.Equal(read(t, dir), first) {
		t.Errorf("opened again it is another: %v", b)
	}

	later := now.Add(75 * 24 * time.Hour)
	b, _ := open(t, dir, domain, later)
	renewed, err := b.Certificate()
	if err != nil || verify(t, dir, renewed, domain, now.Add(100*24*time.Hour)) != nil {
		t.Errorf("a certificate of later: %v", err)
	}
	if _, made := open(t, dir, domain, now.Add(10*365*24*time.Hour)); !made {
		t.Error("an authority that ends is kept")
	}
	if _, made := open(t, dir, "other.test", now); !made || bytes.Equal(read(t, dir), first) {
		t.Error("the authority of another domain is kept")
	}
	if err := os.WriteFile(filepath.Join(dir, certs.AuthorityFile), []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := certs.OpenAuthority(dir, domain, time.Now); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
		t.Errorf("a damaged file: %v", err)
	}
}

// TestRenewal: a certificate is signed anew while the server runs.
func TestRenewal(t *testing.T) {
	now := time.Now()
	a, _, err := certs.OpenAuthority(t.TempDir(), domain, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	first, err := a.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(61 * 24 * time.Hour)
	if second, err := a.Certificate(); err != nil || second == first || !second.Leaf.NotAfter.After(first.Leaf.NotAfter) {
		t.Errorf("%v", err)
	}
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	a, _ := open(t, dir, domain, time.Now())
	config := certs.TLS(certs.Config{Domain: domain, Own: a})
	for name, ok := range map[string]bool{"": true, domain: true, "X." + domain + ".": true, "example.com": false, "evil" + domain: false} {
		near, far := net.Pipe()
		go func() { tls.Server(far, config).Handshake(); far.Close() }()
		c := tls.Client(near, &tls.Config{ServerName: name, InsecureSkipVerify: true})
		if err := c.Handshake(); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
		near.Close()
	}
}

// TestFiles: a certificate of the operator's is served, and its successor.
func TestFiles(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	cert, key := filepath.Join(dir, certs.AuthorityFile), filepath.Join(dir, "key.pem")
	write := func() {
		t.Helper()
		fresh := t.TempDir()
		open(t, fresh, domain, now)
		for from, to := range map[string]string{certs.AuthorityFile: cert, "ca-key.pem": key} {
			b, err := os.ReadFile(filepath.Join(fresh, from))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(to, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(to, now, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	write()
	f, err := certs.OpenFiles(cert, key, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	first, _ := f.Certificate()
	now = now.Add(time.Minute)
	if err := os.WriteFile(cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := f.Certificate(); err != nil || c != first {
		t.Errorf("while it is replaced: %v", err)
	}
	now = now.Add(time.Minute)
	write()
	if c, err := f.Certificate(); err != nil || c == first {
		t.Errorf("its successor is not served: %v", err)
	}
	if _, err := certs.OpenFiles(cert, cert, time.Now); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("no key: %v", err)
	}
}
