// Package blob is the contract of the store of large immutable byte strings,
// each named by its content.
//
// blob/blobtest holds every body to what is said here.
package blob

import (
	"context"
	"encoding/hex"
	"io"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Digest names a blob: "sha256:" and 64 lower-case hex digits of its bytes.
type Digest string

const prefix = "sha256:"

// ParseDigest returns s as a Digest, or an error of kind Invalid.
func ParseDigest(s string) (Digest, error) {
	if len(s) != len(prefix)+64 || s[:len(prefix)] != prefix {
		return "", sandbox.Errorf("parse digest", sandbox.Invalid, "%.80q is not sha256:<64 hex digits>", s)
	}
	for _, c := range s[len(prefix):] {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", sandbox.Errorf("parse digest", sandbox.Invalid, "%q holds %q, which is not a lower-case hex digit", s, c)
		}
	}
	return Digest(s), nil
}

// DigestOf makes a Digest of a SHA-256 sum.
func DigestOf(sum [32]byte) Digest { return Digest(prefix + hex.EncodeToString(sum[:])) }

// Hex is the digest's 64 hex digits.
func (d Digest) Hex() string { return string(d[len(prefix):]) }

// Info describes a stored blob.
type Info struct {
	Digest Digest
	Size   int64 // bytes
	Stored time.Time
}

// Store keeps blobs. All methods may be called at once from many goroutines.
// Errors are *sandbox.Error: NotFound, Invalid (a malformed digest), Exhausted
// (no space), Unavailable, Internal (stored bytes that no longer match).
type Store interface {
	// Put stores what r gives and returns its name. The blob becomes visible
	// whole or not at all; when Put returns nil it survives the loss of power.
	// Storing the same bytes again is cheap and no error. An error of r's is
	// returned wrapped, and nothing is left.
	Put(ctx context.Context, r io.Reader) (Info, error)

	// Open returns the blob's bytes from offset (0 to its size). They are checked
	// while they are read from offset 0: the read that meets the end returns an
	// error of kind Internal in place of io.EOF if they do not match d.
	Open(ctx context.Context, d Digest, offset int64) (io.ReadCloser, error)

	// Stat describes a blob without reading it.
	Stat(ctx context.Context, d Digest) (Info, error)

	// Remove deletes a blob; one that is not there is no error. Readers that
	// have it open read on.
	Remove(ctx context.Context, d Digest) error

	// List calls f for every blob, in no order, until f fails; that error is
	// returned. Blobs stored or removed meanwhile may be missed.
	List(ctx context.Context, f func(Info) error) error
}
