// Package pass makes and checks the tokens that open one port of one sandbox.
//
// A pass is checked without any store: it is bound by a signature to its sandbox
// and port, to a generation, which the owner moves on to end all that were given
// out, and to a time.
package pass

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Kind is how a pass may be shown.
type Kind byte

const (
	Token  Kind = 1 // in a header or a URL, until it expires
	Once   Kind = 2 // in a URL, for a Cookie in exchange, one time
	Cookie Kind = 3 // by the browser that got it, until it expires
)

// Claims is what a pass says.
type Claims struct {
	Kind       Kind
	Sandbox    sandbox.ID
	Port       uint16
	Generation uint32
	Expires    time.Time // whole seconds
	Nonce      [8]byte   // tells passes apart
}

// Serial names one pass, for those that serve once.
func (c Claims) Serial() string { return hex.EncodeToString(c.Nonce[:]) }

// MinSecret is the least number of bytes of a secret.
const MinSecret = 32

// Prefix begins the text of every pass, so that one can be told from other secrets.
const Prefix = "bpt_"

// The parts of a pass: kind, port, generation, time, nonce, then the signature.
// The sandbox is in the signature alone, for whoever checks knows it.
const (
	claimsLen = 1 + 2 + 4 + 8 + 8
	sumLen    = sha256.Size
	textLen   = len(Prefix) + (claimsLen+sumLen)*4/3 + 1 // 55 bytes are 74 characters
)

// Signer makes and checks passes. Its methods may be called from many goroutines.
type Signer struct {
	key []byte // nil signs nothing
	now func() time.Time
}

// New derives a Signer's key from the server's secret, which may serve others
// too. With less than MinSecret bytes nothing is signed, and nothing passes.
func New(secret []byte, now func() time.Time) *Signer {
	s := &Signer{now: now}
	if len(secret) < MinSecret {
		return s
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "berth port pass 1", sha256.Size)
	if err != nil {
		panic(err) // only for a length that no hash gives
	}
	s.key = key
	return s
}

// Sign makes a pass; its nonce is drawn here. Unsupported: there is no secret.
func (s *Signer) Sign(c Claims) (string, error) {
	if s.key == nil {
		return "", sandbox.Errorf("sign pass", sandbox.Unsupported, "this server has no secret to sign with")
	}
	rand.Read(c.Nonce[:]) // never fails: it ends the program instead
	b := c.bytes()
	return Prefix + base64.RawURLEncoding.EncodeToString(append(b, s.sum(c.Sandbox, b)...)), nil
}

// Check returns what a pass for that port of that sandbox says, or false: it was
// not signed here, or for another, or its time is over. It takes the same time
// whatever is wrong with a signature.
func (s *Signer) Check(text string, id sandbox.ID, port uint16) (Claims, bool) {
	c := Claims{Sandbox: id}
	encoded, ok := strings.CutPrefix(text, Prefix)
	if !ok || len(text) > textLen || s.key == nil {
		return c, false
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil || len(b) != claimsLen+sumLen || !hmac.Equal(b[claimsLen:], s.sum(id, b[:claimsLen])) {
		return c, false
	}
	c.Kind, c.Port = Kind(b[0]), binary.BigEndian.Uint16(b[1:])
	c.Generation = binary.BigEndian.Uint32(b[3:])
	c.Expires = time.Unix(int64(binary.BigEndian.Uint64(b[7:])), 0).UTC()
	copy(c.Nonce[:], b[15:])
	return c, c.Port == port && s.now().Before(c.Expires)
}

func (c Claims) bytes() []byte {
	b := make([]byte, 0, claimsLen+sumLen)
	b = append(b, byte(c.Kind))
	b = binary.BigEndian.AppendUint16(b, c.Port)
	b = binary.BigEndian.AppendUint32(b, c.Generation)
	b = binary.BigEndian.AppendUint64(b, uint64(c.Expires.Unix()))
	return append(b, c.Nonce[:]...)
}

// sum is the signature. An id has one length, so that there is one way to read
// what is signed.
func (s *Signer) sum(id sandbox.ID, claims []byte) []byte {
	m := hmac.New(sha256.New, s.key)
	m.Write([]byte(id))
	m.Write(claims)
	return m.Sum(nil)
}
