package engine

import (
	"bytes"
	"context"
	"crypto/sha1"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// trust is what a sandbox has been given so that its programs trust what the
// gateway looks into.
type trust struct {
	For    sandbox.ID `json:"for"`              // whose certificate it is: a copy's is its parent's at first
	Bundle string     `json:"bundle"`           // the file of all authorities, inside
	Failed string     `json:"failed,omitempty"` // why it could not be installed
	Java   string     `json:"java,omitempty"`   // why one of Java's lists could not be given it
}

// Where a sandbox keeps whom it trusts. The first of the bundles that is there is
// what environment variables name.
var (
	bundles = []string{
		"/etc/ssl/certs/ca-certificates.crt",                // Debian, Alpine, Arch
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora and kin
		"/etc/pki/tls/certs/ca-bundle.crt",                  // older of these
		"/var/lib/ca-certificates/ca-bundle.pem",            // openSUSE
		"/etc/ssl/cert.pem",
	}
	// anchors are kept by the tools that write the bundles anew.
	anchors = []string{"/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors", "/etc/pki/trust/anchors"}
)

const (
	certDir  = "/usr/local/share/ca-certificates"
	certFile = certDir + "/berth-sandbox.crt"
	hashDir  = "/etc/ssl/certs"
	hashFile = "berth-sandbox.pem"

	blockBegin = "# Begin of the authority of this sandbox\n"
	blockEnd   = "# End of the authority of this sandbox\n"

	maxBundle = 8 << 20 // bytes of a bundle that is taken
	trustTime = 15 * time.Second
)

// environment has those programs trust the authority that bring lists of their
// own. What the template, the sandbox or a command says comes after it.
func (t *trust) environment(env map[string]string) {
	if t == nil || t.Failed != "" {
		return
	}
	env["NODE_EXTRA_CA_CERTS"] = certFile
	for _, k := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE"} {
		env[k] = t.Bundle
	}
}

// trusts reports whether nothing is left to install.
func (s *stored) trusts() bool {
	return !s.inspected() || (s.Trust != nil && s.Trust.For == s.ID)
}

// haveTrust installs the certificate of a sandbox that needs it and does not have
// it, its own or another's: its policy is new, or it is a copy. What keeps it from
// that is on record, and does not keep the caller from working.
func (e *Engine) haveTrust(ctx context.Context, id sandbox.ID) error {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	s, err := e.loadMended(ctx, id)
	if err != nil {
		return err
	}
	return e.installTrust(ctx, s)
}

// installTrust is haveTrust for who holds the sandbox's lock. What has failed is
// tried again. A sandbox that does not run is left for when it does.
func (e *Engine) installTrust(ctx context.Context, s *stored) error {
	l := e.held(s.ID)
	if l == nil || s.State != sandbox.Running || e.credentials == nil || (s.trusts() && (s.Trust == nil || s.Trust.Failed == "")) {
		return nil
	}
	cert, err := e.credentials.Certificate(ctx, s.ID)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, trustTime)
	defer cancel()
	t := &trust{For: s.ID}
	if t.Bundle, t.Java, err = install(limited, l.guest, cert); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx) // nobody waits: the next one does it
		}
		t.Failed = err.Error()
	}
	if s.Trust != nil && *s.Trust == *t {
		return nil
	}
	changed := *s
	changed.Trust = t
	if t.Failed != "" {
		changed.Reason = "its programs do not trust the gateway: " + t.Failed
	} else if t.Java != "" {
		changed.Reason = "its Java does not trust the gateway: " + t.Java
	}
	return e.commit(ctx, s, &changed, "")
}

// files is the part of a guest that a certificate is installed through.
type files interface {
	Stat(ctx context.Context, path string, follow bool) (sandbox.FileInfo, error)
	ListDir(ctx context.Context, path string, depth, limit int, after string) ([]sandbox.FileInfo, bool, error)
	ReadFile(ctx context.Context, path string, r sandbox.ReadRange) (io.ReadCloser, sandbox.FileInfo, error)
	WriteFile(ctx context.Context, path string, o sandbox.WriteOptions, body io.Reader) (sandbox.FileInfo, error)
}

// install puts a certificate where the programs of a sandbox look. It returns the
// bundle that holds it, and what keeps Java from it.
func install(ctx context.Context, guest files, cert []byte) (bundle, java string, err error) {
	if err := write(ctx, guest, certFile, cert); err != nil {
		return "", "", err
	}
	for _, dir := range anchors {
		if is, err := isThere(ctx, guest, dir, sandbox.TypeDir); err != nil || !is || dir == certDir {
			if err != nil {
				return "", "", err
			}
			continue
		}
		if err := write(ctx, guest, path.Join(dir, path.Base(certFile)), cert); err != nil {
			return "", "", err
		}
	}
	if err := addToHashes(ctx, guest, cert); err != nil {
		return "", "", err
	}
	if bundle, err = addToBundles(ctx, guest, cert); err != nil {
		return "", "", err
	}
	java, err = addToJavas(ctx, guest, cert)
	return bundle, java, err
}

// addToHashes puts a certificate into the folder in which each has a file, under the
// name that OpenSSL looks for and under one that a Java which is installed later reads.
func addToHashes(ctx context.Context, guest files, cert []byte) error {
	name, err := hashName(cert)
	if err != nil {
		return err
	}
	if is, err := isThere(ctx, guest, hashDir, sandbox.TypeDir); err != nil || !is {
		return err
	}
	for _, n := range []string{name, hashFile} {
		if err := write(ctx, guest, path.Join(hashDir, n), cert); err != nil {
			return err
		}
	}
	return nil
}

// addToBundles adds a certificate to every bundle, in the place of the one that
// was there from Berth.
func addToBundles(ctx context.Context, guest files, cert []byte) (first string, err error) {
	for _, b := range bundles {
		is, err := isThere(ctx, guest, b, sandbox.TypeFile)
		if err != nil {
			return "", err
		}
		if !is {
			continue
		}
		text, err := read(ctx, guest, b)
		if err != nil {
			return "", err
		}
		if err := write(ctx, guest, b, withBlock(text, cert)); err != nil {
			return "", err
		}
		if first == "" {
			first = b
		}
	}
	if first == "" { // nobody else is trusted there, so nothing is lost
		return certFile, nil
	}
	return first, nil
}

// withBlock is a bundle with a certificate in the place of the one before.
func withBlock(text, cert []byte) []byte {
	before, rest, found := bytes.Cut(text, []byte(blockBegin))
	after := []byte(nil)
	if found {
		_, after, _ = bytes.Cut(rest, []byte(blockEnd))
	}
	var b bytes.Buffer
	b.Write(before)
	if n := len(before); n > 0 && before[n-1] != '\n' {
		b.WriteByte('\n')
	}
	b.WriteString(blockBegin)
	b.Write(cert)
	b.WriteString(blockEnd)
	b.Write(after)
	return b.Bytes()
}

func isThere(ctx context.Context, guest files, name string, kind sandbox.FileType) (bool, error) {
	fi, err := guest.Stat(ctx, name, false)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return false, nil
	}
	return err == nil && fi.Type == kind, err
}

func read(ctx context.Context, guest files, name string) ([]byte, error) {
	body, _, err := guest.ReadFile(ctx, name, sandbox.ReadRange{Length: maxBundle + 1})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, maxBundle+1))
	if err != nil {
		return nil, fail("read "+name, "", err)
	}
	if len(b) > maxBundle {
		return nil, sandbox.Errorf("read "+name, sandbox.Exhausted, "it has more than %d bytes", maxBundle)
	}
	return b, nil
}

func write(ctx context.Context, guest files, name string, b []byte) error {
	_, err := guest.WriteFile(ctx, name, sandbox.WriteOptions{User: "0", Mode: 0o644, Parents: true}, bytes.NewReader(b))
	return err
}

// hashName is the name under which OpenSSL looks for a certificate's subject: a
// hash of its canonical form, which for a single common name is that name in
// lower case.
func hashName(cert []byte) (string, error) {
	block, _ := pem.Decode(cert)
	if block == nil {
		return "", sandbox.Errorf("read certificate", sandbox.Internal, "%w", errors.New("it is not PEM"))
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", sandbox.Errorf("read certificate", sandbox.Internal, "%w", err)
	}
	type attribute struct {
		Type  asn1.ObjectIdentifier
		Value string `asn1:"utf8"`
	}
	canonical, err := asn1.MarshalWithParams([]attribute{{asn1.ObjectIdentifier{2, 5, 4, 3}, strings.ToLower(c.Subject.CommonName)}}, "set")
	if err != nil {
		return "", sandbox.Errorf("read certificate", sandbox.Internal, "%w", err)
	}
	sum := sha1.Sum(canonical)
	var le [4]byte
	binary.BigEndian.PutUint32(le[:], binary.LittleEndian.Uint32(sum[:4]))
	return fmt.Sprintf("%s.0", hex.EncodeToString(le[:])), nil
}
