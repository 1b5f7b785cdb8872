package engine

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// disk is a guest's files in memory. A path that ends in a slash is a folder.
type disk map[string]string

// asked is held by a question to a disk: several come at once.
var asked sync.Mutex

func (d disk) Stat(_ context.Context, name string, _ bool) (sandbox.FileInfo, error) {
	asked.Lock()
	defer asked.Unlock()
	if _, ok := d[name+"/"]; ok {
		return sandbox.FileInfo{Path: name, Type: sandbox.TypeDir}, nil
	}
	if text, ok := d[name]; ok {
		kind := sandbox.TypeFile
		if strings.HasPrefix(text, "-> ") {
			kind = sandbox.TypeSymlink
		}
		return sandbox.FileInfo{Path: name, Type: kind}, nil
	}
	return sandbox.FileInfo{}, sandbox.Errorf("stat", sandbox.NotFound, "no such file")
}

func (d disk) ListDir(_ context.Context, name string, _, _ int, _ string) (all []sandbox.FileInfo, _ bool, err error) {
	asked.Lock()
	defer asked.Unlock()
	for at := range d {
		if rest, ok := strings.CutPrefix(at, name+"/"); ok && strings.Count(rest, "/") == 1 && strings.HasSuffix(rest, "/") {
			all = append(all, sandbox.FileInfo{Path: strings.TrimSuffix(at, "/"), Type: sandbox.TypeDir})
		}
	}
	if all == nil {
		err = sandbox.Errorf("list", sandbox.NotFound, "no such folder")
	}
	return all, false, err
}

func (d disk) ReadFile(_ context.Context, name string, r sandbox.ReadRange) (io.ReadCloser, sandbox.FileInfo, error) {
	asked.Lock()
	defer asked.Unlock()
	return io.NopCloser(strings.NewReader(d[name])), sandbox.FileInfo{}, nil
}

func (d disk) WriteFile(_ context.Context, name string, o sandbox.WriteOptions, body io.Reader) (sandbox.FileInfo, error) {
	asked.Lock()
	defer asked.Unlock()
	if _, full := d["full"]; full {
		return sandbox.FileInfo{}, sandbox.Errorf("write file", sandbox.Exhausted, "%w", errors.New("no space left"))
	}
	b, err := io.ReadAll(body)
	d[name] = string(b)
	return sandbox.FileInfo{}, err
}

func testCertificate(t *testing.T, name string) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestInstallAddsToWhatIsThere(t *testing.T) {
	const debian = "/etc/ssl/certs/ca-certificates.crt"
	d := disk{debian: "one\ntwo", "/etc/ssl/certs/": "", "/etc/ssl/cert.pem": "-> certs/ca-certificates.crt", "/etc/pki/ca-trust/source/anchors/": ""}
	first, second := testCertificate(t, "Berth sandbox a"), testCertificate(t, "Berth sandbox b")
	for _, cert := range [][]byte{first, first, second} { // again, and as a fork
		bundle, _, err := install(t.Context(), d, cert)
		if err != nil || bundle != debian {
			t.Fatalf("%q, %v", bundle, err)
		}
		want := "one\ntwo\n" + blockBegin + string(cert) + blockEnd
		if d[debian] != want {
			t.Errorf("the bundle is %q", d[debian])
		}
		for _, at := range []string{certFile, "/etc/pki/ca-trust/source/anchors/berth-sandbox.crt"} {
			if d[at] != string(cert) {
				t.Errorf("%s is %q", at, d[at])
			}
		}
		name, err := hashName(cert)
		if err != nil || d[path.Join(hashDir, name)] != string(cert) {
			t.Errorf("%s is not there: %v", name, err)
		}
	}
	if !strings.HasPrefix(d["/etc/ssl/cert.pem"], "->") {
		t.Error("a link was written over")
	}
}

func TestInstallWhereNobodyIsTrusted(t *testing.T) {
	d := disk{}
	bundle, _, err := install(t.Context(), d, testCertificate(t, "x"))
	if err != nil || bundle != certFile || len(d) != 1 {
		t.Errorf("%q, %v, %v", bundle, d, err)
	}
	if _, _, err := install(t.Context(), disk{"full": ""}, testCertificate(t, "x")); sandbox.KindOf(err) != sandbox.Exhausted {
		t.Errorf("on a full disk: %v", err)
	}
	d = disk{bundles[0]: strings.Repeat("x", maxBundle+1)}
	if _, _, err := install(t.Context(), d, testCertificate(t, "x")); sandbox.KindOf(err) != sandbox.Exhausted || len(d[bundles[0]]) != maxBundle+1 {
		t.Errorf("a bundle without end: %v", err)
	}
}

func TestABlockThatSomebodyBroke(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "BEGIN",
		"a\n" + blockBegin + "no end":     "a\nBEGIN",
		blockBegin + "x" + blockEnd + "b": "BEGINb",
		"a" + blockEnd:                    "a" + blockEnd + "BEGIN",
	} {
		want = strings.Replace(want, "BEGIN", blockBegin+"cert\n"+blockEnd, 1)
		if got := string(withBlock([]byte(in), []byte("cert\n"))); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

// TestHashNameIsOpenSSLs compares with the program whose rule it is.
func TestHashNameIsOpenSSLs(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("SKIPPED: openssl is not installed; the names of hashed certificates are not compared by this run")
	}
	for _, name := range []string{"Berth sandbox abcdefghij0123456789", "x"} {
		cert := testCertificate(t, name)
		file := filepath.Join(t.TempDir(), "c.pem")
		if err := os.WriteFile(file, cert, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("openssl", "x509", "-hash", "-noout", "-in", file).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := hashName(cert); err != nil || got != string(bytes.TrimSpace(out))+".0" {
			t.Errorf("%s: %s, %v, want %s", name, got, err, out)
		}
	}
	if _, err := hashName([]byte("nothing")); err == nil {
		t.Error("what is no certificate has a name")
	}
}

func TestTrustEnvironmentComesFirst(t *testing.T) {
	s := &stored{Base: base{Env: map[string]string{"SSL_CERT_FILE": "the template's"}}, Trust: &trust{For: "x", Bundle: "/bundle"}}
	cmd, err := s.complete(sandbox.Command{Env: map[string]string{"PIP_CERT": "the command's"}})
	if err != nil || cmd.Env["SSL_CERT_FILE"] != "the template's" || cmd.Env["PIP_CERT"] != "the command's" || cmd.Env["REQUESTS_CA_BUNDLE"] != "/bundle" {
		t.Errorf("%v, %v", cmd.Env, err)
	}
	s.Trust.Failed = "no space"
	if cmd, _ = s.complete(sandbox.Command{}); cmd.Env["REQUESTS_CA_BUNDLE"] != "" {
		t.Errorf("%v", cmd.Env)
	}
}

func TestInstallAddsToJavasLists(t *testing.T) {
	list, err := os.ReadFile("../keystore/testdata/authorities.jks")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := os.ReadFile("../keystore/testdata/sealed.p12")
	if err != nil {
		t.Fatal(err)
	}
	const shared, own = "/etc/ssl/certs/java/cacerts", "/opt/jdk-25/lib/security/cacerts"
	d := disk{shared: string(list), own: string(list), "/opt/jdk-25/": "", "/opt/other/": "", "/opt/other/lib/security/cacerts": "not Java's",
		"/usr/lib/jvm/java-8/": "", "/usr/lib/jvm/java-8/jre/lib/security/cacerts": "-> " + shared}
	cert := testCertificate(t, "Berth sandbox a")
	if _, java, err := install(t.Context(), d, cert); err != nil || java != "" {
		t.Fatalf("%q, %v", java, err)
	}
	block, _ := pem.Decode(cert)
	for _, at := range []string{shared, own} {
		if !strings.Contains(d[at], string(block.Bytes)) || !strings.Contains(d[at], "first") {
			t.Errorf("%s does not hold the authority and what it held", at)
		}
	}
	if d["/opt/other/lib/security/cacerts"] != "not Java's" || !strings.HasPrefix(d["/usr/lib/jvm/java-8/jre/lib/security/cacerts"], "->") {
		t.Error("what is no list of Java's, or a link to one, was written over")
	}
	d[own] = string(sealed)
	if _, java, err := install(t.Context(), d, cert); err != nil || !strings.Contains(java, own) || d[own] != string(sealed) {
		t.Errorf("of a list under a password: %q, %v", java, err)
	}
}
