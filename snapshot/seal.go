package snapshot

import (
	"bytes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/berth-dev/berth/sandbox"
)

// KeySize is the length of the key that a Store seals with, in bytes.
const KeySize = 32

// sealedMark begins a sealed blob: it is no zstd frame. A nonce and what
// XChaCha20-Poly1305 gives follow.
var sealedMark = []byte("berthS1\n")

// sealer encrypts blobs. The nonce is a keyed sum of what is sealed, so the same
// bytes come to the same blob, as sharing wants it, and who has no key learns from a
// blob's name only that it is there.
type sealer struct {
	aead  cipher.AEAD
	nonce []byte // the key of nonces
}

func newSealer(key []byte) (*sealer, error) {
	if len(key) != KeySize {
		return nil, sandbox.Errorf("make snapshot store", sandbox.Invalid, "the key has %d bytes, %d are needed", len(key), KeySize)
	}
	each, err := hkdf.Key(sha256.New, key, nil, "berth snapshots, format 1", 2*chacha20poly1305.KeySize)
	if err != nil {
		return nil, sandbox.Errorf("make snapshot store", sandbox.Internal, "%w", err)
	}
	aead, err := chacha20poly1305.NewX(each[:chacha20poly1305.KeySize])
	if err != nil {
		return nil, sandbox.Errorf("make snapshot store", sandbox.Internal, "%w", err)
	}
	return &sealer{aead: aead, nonce: each[chacha20poly1305.KeySize:]}, nil
}

// seal appends packed, sealed, to dst.
func (s *sealer) seal(dst, packed []byte) []byte {
	mac := hmac.New(sha256.New, s.nonce)
	mac.Write(packed)
	dst = append(dst, sealedMark...)
	dst = append(dst, mac.Sum(nil)[:chacha20poly1305.NonceSizeX]...)
	return s.aead.Seal(dst, dst[len(dst)-chacha20poly1305.NonceSizeX:], packed, sealedMark)
}

// sealOverhead is how much longer a sealed blob is.
func sealOverhead() int64 {
	return int64(len(sealedMark)) + chacha20poly1305.NonceSizeX + chacha20poly1305.Overhead
}

// open decrypts a blob in its place.
func (s *sealer) open(blob []byte) ([]byte, error) {
	rest := blob[len(sealedMark):]
	if len(rest) < chacha20poly1305.NonceSizeX {
		return nil, errors.New("it is cut short")
	}
	nonce, sealed := rest[:chacha20poly1305.NonceSizeX], rest[chacha20poly1305.NonceSizeX:]
	packed, err := s.aead.Open(sealed[:0], nonce, sealed, sealedMark)
	if err != nil {
		return nil, &sandbox.Error{Op: "open what is sealed", Kind: sandbox.Internal, Err: errors.New("it was sealed with another key, or is damaged"),
			Hint: "start the server with the key file that it was sealed with: snapshots.key in its configuration"}
	}
	return packed, nil
}

// sealed gives the bytes of a blob that holds packed, in dst if they are not packed
// itself.
func (s *Store) sealed(dst, packed []byte) []byte {
	if s.sealer == nil {
		return packed
	}
	return s.sealer.seal(dst, packed)
}

// opened gives what a blob holds, which may be in the same place. A store that seals
// reads also what was stored before it did.
func (s *Store) opened(stored []byte) ([]byte, error) {
	if !bytes.HasPrefix(stored, sealedMark) {
		return stored, nil
	}
	if s.sealer == nil {
		return nil, &sandbox.Error{Op: "open what is sealed", Kind: sandbox.Unsupported, Err: errors.New("it is sealed, and the server has no key"),
			Hint: "name the key file that it was sealed with: snapshots.key in the server's configuration"}
	}
	return s.sealer.open(stored)
}
