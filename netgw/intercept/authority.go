package intercept

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// How long certificates are good for. They begin a day early: a sandbox's clock
// may be behind.
const (
	early         = 24 * time.Hour
	authorityLife = 10 * 365 * 24 * time.Hour
	leafLife      = 30 * 24 * time.Hour
	leafRenewal   = 10 * 24 * time.Hour // before its end
)

const (
	authorityPrefix = "authority/" // + id: an authority, sealed under this very key
	maxLeaves       = 128          // of one sandbox
	maxAncestors    = 8            // whose processes a fork's certificates please
)

// authority is one sandbox's certificate authority. Its key never leaves the
// host.
type authority struct {
	cert  *x509.Certificate
	key   *ecdsa.PrivateKey
	above [][]byte // the same authority as its ancestors certify it, the nearest first

	mu     sync.Mutex
	leaf   *ecdsa.PrivateKey // of all leaves
	leaves map[string]*tls.Certificate
}

// storedAuthority is the form on record, before it is sealed.
type storedAuthority struct {
	Cert  []byte   `json:"cert"`
	Key   []byte   `json:"key"` // PKCS #8
	Above [][]byte `json:"above,omitempty"`
}

// authorities keeps one authority a sandbox, made when it is first needed.
type authorities struct {
	records record.Store
	sealer  sealer
	now     func() time.Time

	mu  sync.Mutex
	all map[sandbox.ID]*authority
}

// get returns a sandbox's authority, made if there is none. Of several that make
// it at once, also in several processes, one wins.
func (as *authorities) get(ctx context.Context, id sandbox.ID) (*authority, error) {
	for {
		a, err := as.find(ctx, id)
		if sandbox.KindOf(err) != sandbox.NotFound {
			return a, err
		}
		if a, err = newAuthority(id, as.now()); err != nil {
			return nil, err
		}
		if err = as.save(ctx, id, a); sandbox.KindOf(err) != sandbox.Conflict {
			return as.keep(id, a, err)
		}
	}
}

// find returns a sandbox's authority, or NotFound.
func (as *authorities) find(ctx context.Context, id sandbox.ID) (*authority, error) {
	as.mu.Lock()
	a := as.all[id]
	as.mu.Unlock()
	if a != nil {
		return a, nil
	}
	entry, err := as.records.Get(ctx, authorityPrefix+string(id))
	if err != nil {
		return nil, err
	}
	plain, err := as.sealer.Open(entry.Key, entry.Value)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	a, err = parseAuthority(plain)
	return as.keep(id, a, err)
}

func (as *authorities) keep(id sandbox.ID, a *authority, err error) (*authority, error) {
	if err != nil {
		return nil, err
	}
	as.mu.Lock()
	defer as.mu.Unlock()
	if other := as.all[id]; other != nil {
		return other, nil
	}
	as.all[id] = a
	return a, nil
}

// save puts a new authority on record; Conflict means that there is one.
func (as *authorities) save(ctx context.Context, id sandbox.ID, a *authority) error {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return sandbox.Errorf("encode authority", sandbox.Internal, "%w", err)
	}
	plain, err := json.Marshal(storedAuthority{Cert: a.cert.Raw, Key: key, Above: a.above})
	clear(key)
	if err != nil {
		return sandbox.Errorf("encode authority", sandbox.Internal, "%w", err)
	}
	defer clear(plain)
	name := authorityPrefix + string(id)
	sealed, err := as.sealer.Seal(name, plain)
	if err != nil {
		return err
	}
	_, err = as.records.Commit(ctx, record.Txn{If: []record.Cond{{Key: name}}, Then: []record.Op{{Key: name, Value: sealed}}})
	return err
}

func (as *authorities) inherit(ctx context.Context, parent, child sandbox.ID) error {
	from, err := as.find(ctx, parent)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	a, err := newAuthority(child, as.now())
	if err != nil {
		return err
	}
	cross, err := x509.CreateCertificate(rand.Reader, authorityTemplate(child, as.now()), from.cert, a.key.Public(), from.key)
	if err != nil {
		return sandbox.Errorf("certify the child's authority", sandbox.Internal, "%w", err)
	}
	a.above = append([][]byte{cross}, from.above[:min(len(from.above), maxAncestors-1)]...)
	if err = as.save(ctx, child, a); sandbox.KindOf(err) == sandbox.Conflict {
		return nil // it has inherited already
	}
	_, err = as.keep(child, a, err)
	return err
}

func (as *authorities) forget(ctx context.Context, id sandbox.ID) error {
	as.mu.Lock()
	delete(as.all, id)
	as.mu.Unlock()
	name := authorityPrefix + string(id)
	if _, err := as.records.Get(ctx, name); sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	_, err := as.records.Commit(ctx, record.Txn{Then: []record.Op{{Key: name, Delete: true}}})
	return err
}

func parseAuthority(plain []byte) (*authority, error) {
	var s storedAuthority
	if err := json.Unmarshal(plain, &s); err != nil {
		return nil, sandbox.Errorf("decode authority", sandbox.Internal, "%w", err)
	}
	defer clear(s.Key)
	cert, err := x509.ParseCertificate(s.Cert)
	if err != nil {
		return nil, sandbox.Errorf("decode authority", sandbox.Internal, "%w", err)
	}
	key, err := x509.ParsePKCS8PrivateKey(s.Key)
	ec, ok := key.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return nil, sandbox.Errorf("decode authority", sandbox.Internal, "it holds no usable key")
	}
	return &authority{cert: cert, key: ec, above: s.Above, leaves: map[string]*tls.Certificate{}}, nil
}

func newAuthority(id sandbox.ID, now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, sandbox.Errorf("make authority's key", sandbox.Internal, "%w", err)
	}
	t := authorityTemplate(id, now)
	cert, err := certify(t, t, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key, leaves: map[string]*tls.Certificate{}}, nil
}

// authorityTemplate names the sandbox: a fork's authority is another's.
func authorityTemplate(id sandbox.ID, now time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "Berth sandbox " + string(id)},
		NotBefore: now.Add(-early), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
}

func certify(t, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, t, parent, public, key)
	if err == nil {
		var c *x509.Certificate
		if c, err = x509.ParseCertificate(der); err == nil {
			return c, nil
		}
	}
	return nil, sandbox.Errorf("make certificate", sandbox.Internal, "%w", err)
}

// serial is random: 127 bits, never 0.
func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b) // never fails: it ends the program instead
	b[0] &= 0x7f
	b[15] |= 1
	return new(big.Int).SetBytes(b)
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// certificate returns the leaf of a host, with what leads from it to the
// authority's ancestors.
func (a *authority) certificate(host string, now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[host]; c != nil && now.Before(c.Leaf.NotAfter.Add(-leafRenewal)) {
		return c, nil
	}
	if a.leaf == nil {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return nil, sandbox.Errorf("make key", sandbox.Internal, "%w", err)
		}
		a.leaf = key
	}
	t := &x509.Certificate{
		SerialNumber: serial(), NotBefore: now.Add(-early), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(host); ip != nil {
		t.IPAddresses = []net.IP{ip}
	} else {
		t.DNSNames = []string{host}
	}
	if len(host) <= 64 { // the bound on a common name
		t.Subject.CommonName = host
	}
	leaf, err := certify(t, a.cert, a.leaf.Public(), a.key)
	if err != nil {
		return nil, err
	}
	c := &tls.Certificate{Certificate: append([][]byte{leaf.Raw}, a.above...), PrivateKey: a.leaf, Leaf: leaf}
	for old := range a.leaves { // any one makes room: it is made again in a moment
		if len(a.leaves) < maxLeaves {
			break
		}
		delete(a.leaves, old)
	}
	a.leaves[host] = c
	return c, nil
}
