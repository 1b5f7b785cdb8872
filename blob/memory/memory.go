// Package memory keeps blobs for as long as the process lives, for tests of what
// stands above a store.
package memory

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"sync"
	"time"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Store is a blob.Store. The zero Store is empty and ready for use.
type Store struct {
	mu  sync.Mutex
	all map[blob.Digest]stored
}

type stored struct {
	bytes []byte
	at    time.Time
}

var _ blob.Store = (*Store)(nil)

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, r io.Reader) (blob.Info, error) {
	const op = "put blob"
	if err := ctx.Err(); err != nil {
		return blob.Info{}, &sandbox.Error{Op: op, Err: err}
	}
	b, err := io.ReadAll(r)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return blob.Info{}, &sandbox.Error{Op: op, Err: err}
	}
	d := blob.DigestOf(sha256.Sum256(b))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[blob.Digest]stored{}
	}
	s.all[d] = stored{b, time.Now()}
	return blob.Info{Digest: d, Size: int64(len(b)), Stored: s.all[d].at}, nil
}

// find returns a blob, or NotFound.
func (s *Store) find(ctx context.Context, op string, d blob.Digest) (stored, error) {
	if _, err := blob.ParseDigest(string(d)); err != nil {
		return stored{}, &sandbox.Error{Op: op, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return stored{}, &sandbox.Error{Op: op, Err: err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.all[d]
	if !ok {
		return b, sandbox.Errorf(op, sandbox.NotFound, "no blob %s", d)
	}
	return b, nil
}

// Open implements blob.Store. The bytes cannot be damaged, and are not checked.
func (s *Store) Open(ctx context.Context, d blob.Digest, offset int64) (io.ReadCloser, error) {
	const op = "open blob"
	b, err := s.find(ctx, op, d)
	if err != nil {
		return nil, err
	}
	if offset < 0 || offset > int64(len(b.bytes)) {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "offset %d is not 0 to %d, the size of %s", offset, len(b.bytes), d)
	}
	return io.NopCloser(bytes.NewReader(b.bytes[offset:])), nil
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, d blob.Digest) (blob.Info, error) {
	b, err := s.find(ctx, "stat blob", d)
	if err != nil {
		return blob.Info{}, err
	}
	return blob.Info{Digest: d, Size: int64(len(b.bytes)), Stored: b.at}, nil
}

// Remove implements blob.Store.
func (s *Store) Remove(ctx context.Context, d blob.Digest) error {
	if _, err := s.find(ctx, "remove blob", d); sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	} else if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, d)
	return nil
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, f func(blob.Info) error) error {
	if err := ctx.Err(); err != nil {
		return &sandbox.Error{Op: "list blobs", Err: err}
	}
	s.mu.Lock()
	var all []blob.Info
	for d, b := range s.all {
		all = append(all, blob.Info{Digest: d, Size: int64(len(b.bytes)), Stored: b.at})
	}
	s.mu.Unlock()
	for _, i := range all {
		if err := f(i); err != nil {
			return err
		}
	}
	return nil
}

// Len is how many blobs there are.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}
