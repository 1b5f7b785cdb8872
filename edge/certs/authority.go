// Package certs gives the HTTPS listener the certificate that each name needs: of
// the operator's, of the server's own authority, or of a public one through ACME.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// The files of an authority. Who trusts the first trusts what is signed with the
// second, for the server's domain and no other name.
const (
	AuthorityFile = "ca.pem"
	keyFile       = "ca-key.pem" // 0600
)

const (
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 90 * 24 * time.Hour
	renewBefore   = 30 * 24 * time.Hour
	clockSkew     = time.Hour // of clients
)

// Authority signs certificates of one domain and the names beneath it. Its methods
// may be called from many goroutines.
type Authority struct {
	domain string
	now    func() time.Time
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey

	mu   sync.Mutex
	leaf *tls.Certificate
}

// OpenAuthority takes up the authority that dir holds. One that is missing, is of
// another domain or is about to end is made anew; made says so, for those who
// trusted the old one.
func OpenAuthority(dir, domain string, now func() time.Time) (a *Authority, made bool, err error) {
	const op = "open certificate authority"
	a = &Authority{domain: domain, now: now}
	err = a.load(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !a.serves() {
		made = true
		err = a.make(dir)
	}
	if err == nil {
		return a, made, nil
	}
	e := &sandbox.Error{Op: op, Kind: sandbox.Invalid, Err: err, Hint: "remove " + filepath.Join(dir, AuthorityFile) + " to have a new one made"}
	switch {
	case errors.Is(err, fs.ErrPermission):
		e.Kind, e.Hint = sandbox.Forbidden, "run it as the owner of the data directory"
	case errors.Is(err, unix.ENOSPC):
		e.Kind, e.Hint = sandbox.Exhausted, "free space on the disk that holds the data directory"
	}
	return nil, false, e
}

// load reads both files.
func (a *Authority) load(dir string) error {
	certDER, err := readPEM(filepath.Join(dir, AuthorityFile), "CERTIFICATE")
	if err != nil {
		return err
	}
	keyDER, err := readPEM(filepath.Join(dir, keyFile), "EC PRIVATE KEY")
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(certDER); err != nil {
		return err
	}
	if a.key, err = x509.ParseECPrivateKey(keyDER); err != nil {
		return err
	}
	if !a.key.PublicKey.Equal(a.cert.PublicKey) {
		return fmt.Errorf("%s and %s do not belong together", AuthorityFile, keyFile)
	}
	return nil
}

func readPEM(path, kind string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	if block == nil || block.Type != kind {
		return nil, fmt.Errorf("%s does not hold a %s", path, kind)
	}
	return block.Bytes, nil
}

// serves reports whether the authority is of the domain, and lives long enough to
// sign for it.
func (a *Authority) serves() bool {
	names := a.cert.PermittedDNSDomains
	return len(names) == 1 && names[0] == a.domain && a.now().Add(leafLife).Before(a.cert.NotAfter)
}

// make makes an authority and writes it, the key first: a certificate that is
// there has its key.
func (a *Authority) make(dir string) (err error) {
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return err
	}
	everywhere4, everywhere6 := net.IPNet{IP: net.IPv4zero.To4(), Mask: net.CIDRMask(0, 32)}, net.IPNet{IP: net.IPv6zero, Mask: net.CIDRMask(0, 128)}
	t := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "Berth local authority for " + a.domain},
		NotBefore:    a.now().Add(-clockSkew), NotAfter: a.now().Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage:                    x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		PermittedDNSDomainsCritical: true, PermittedDNSDomains: []string{a.domain},
		ExcludedIPRanges: []*net.IPNet{&everywhere4, &everywhere6},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &a.key.PublicKey, a.key)
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	key, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return err
	}
	if err := writeWhole(filepath.Join(dir, keyFile), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}), 0o600); err != nil {
		return err
	}
	return writeWhole(filepath.Join(dir, AuthorityFile), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
}

func serial() *big.Int {
	var b [16]byte
	rand.Read(b[:]) // never fails: it ends the program instead
	b[0] &= 0x7f
	return new(big.Int).SetBytes(b[:])
}

// Certificate is that of the domain and the names right beneath it, signed anew
// when it is about to end.
func (a *Authority) Certificate() (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.leaf != nil && a.now().Add(renewBefore).Before(a.leaf.Leaf.NotAfter) {
		return a.leaf, nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: a.domain},
		DNSNames:     []string{a.domain, "*." + a.domain},
		NotBefore:    a.now().Add(-clockSkew), NotAfter: a.now().Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	a.leaf = &tls.Certificate{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key, Leaf: leaf}
	return a.leaf, nil
}

// writeWhole writes a file so that path holds all of it or what it held before.
func writeWhole(path string, data []byte, mode fs.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // gone already when all went well
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
