package secret

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// KeySize is the length of a sealer's key, in bytes.
const KeySize = chacha20poly1305.KeySize

// sealVersion is the first byte of what is sealed: XChaCha20-Poly1305, a random
// nonce of 24 bytes, then the rest.
const sealVersion = 1

// overhead is how much longer sealed bytes are.
const overhead = 1 + chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead

// Sealer encrypts what is put on record. Sealed bytes are bound to a label: moved
// under another one they do not open.
type Sealer struct{ key []byte }

// NewSealer returns a Sealer of a key of KeySize bytes, which it keeps.
func NewSealer(key []byte) (*Sealer, error) {
	if len(key) != KeySize {
		return nil, sandbox.Errorf("make sealer", sandbox.Invalid, "the key has %d bytes, %d are needed", len(key), KeySize)
	}
	return &Sealer{key: bytes.Clone(key)}, nil
}

// Seal encrypts plain under a label.
func (s *Sealer) Seal(label string, plain []byte) ([]byte, error) {
	aead, err := chacha20poly1305.NewX(s.key)
	if err != nil {
		return nil, sandbox.Errorf("seal", sandbox.Internal, "%w", err)
	}
	sealed := make([]byte, 1+chacha20poly1305.NonceSizeX, len(plain)+overhead)
	sealed[0] = sealVersion
	rand.Read(sealed[1:]) // never fails: it ends the program instead
	return aead.Seal(sealed, sealed[1:], plain, []byte(label)), nil
}

// Open decrypts what Seal made under the same label. Anything else is Internal:
// damage, another label or another key; the text never holds what was sealed.
func (s *Sealer) Open(label string, sealed []byte) ([]byte, error) {
	if len(sealed) < overhead || sealed[0] != sealVersion {
		return nil, sandbox.Errorf("open "+label, sandbox.Internal, "it is not what this version seals")
	}
	aead, err := chacha20poly1305.NewX(s.key)
	if err != nil {
		return nil, sandbox.Errorf("open "+label, sandbox.Internal, "%w", err)
	}
	nonce := sealed[1 : 1+chacha20poly1305.NonceSizeX]
	plain, err := aead.Open(nil, nonce, sealed[1+len(nonce):], []byte(label))
	if err != nil {
		return nil, &sandbox.Error{Op: "open " + label, Kind: sandbox.Internal, Err: errors.New("it was sealed with another key, or is damaged"),
			Hint: "start the server with the key file that it was sealed with"}
	}
	return plain, nil
}

// proofKey holds something sealed, by which another key is noticed at once.
const proofKey = "sealer/proof"

// Prove makes sure that the records were sealed with this key, and notes it when
// there is none yet. Another key is Invalid.
func (s *Sealer) Prove(ctx context.Context, records record.Store) error {
	const op = "check secret key"
	entry, err := records.Get(ctx, proofKey)
	if sandbox.KindOf(err) == sandbox.NotFound {
		sealed, err := s.Seal(proofKey, []byte(proofKey))
		if err != nil {
			return err
		}
		_, err = records.Commit(ctx, record.Txn{If: []record.Cond{{Key: proofKey}}, Then: []record.Op{{Key: proofKey, Value: sealed}}})
		return err
	}
	if err != nil {
		return &sandbox.Error{Op: op, Err: err}
	}
	if _, err := s.Open(proofKey, entry.Value); err != nil {
		return &sandbox.Error{Op: op, Kind: sandbox.Invalid, Err: errors.New("the secrets on record were sealed with another key"),
			Hint: "bring back the key file that was here; without it the secrets are lost"}
	}
	return nil
}

// ReadKey reads a key file: 64 hex digits. One that others than its owner may
// read is refused. A file that is not there is NotFound.
func ReadKey(path string) ([]byte, error) {
	const op = "read secret key"
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.NotFound, Err: err, Hint: "make one with: openssl rand -hex 32"}
	}
	if err != nil {
		return nil, sandbox.Errorf(op, sandbox.Internal, "%w", err)
	}
	if info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0 {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Forbidden, Err: fmt.Errorf("others than its owner may read %s", path),
			Hint: "chmod 600 " + path}
	}
	text, err := readSome(path, 4*KeySize)
	if err != nil {
		return nil, sandbox.Errorf(op, sandbox.Internal, "%w", err)
	}
	defer clear(text)
	text = bytes.TrimSpace(text)
	key := make([]byte, KeySize)
	if len(text) != hex.EncodedLen(KeySize) {
		return nil, notKey(op, path)
	}
	if _, err := hex.Decode(key, text); err != nil {
		return nil, notKey(op, path)
	}
	return key, nil
}

func notKey(op, path string) error {
	return &sandbox.Error{Op: op, Kind: sandbox.Invalid, Err: fmt.Errorf("%s does not hold a key", path),
		Hint: "it holds 64 hex digits and nothing else; without the right ones the secrets on record are lost"}
}

// readSome reads a file of at most limit bytes.
func readSome(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, limit+1)
	n := 0
	for n < len(b) {
		m, err := f.Read(b[n:])
		n += m
		if m == 0 || err != nil {
			break
		}
	}
	return b[:n], nil
}
