package snapshot

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Swept is what a sweep has removed, or would.
type Swept struct {
	Blobs int
	Bytes int64
}

// Sweep removes every blob that no manifest of live needs and that no save has
// stored or relied on since the sweep began. live is asked after that beginning,
// so a save whose digest is on record before its Release loses nothing.
//
// A manifest that cannot be read ends the sweep before anything is removed: what
// it needs is not known. There is one sweep at a time; the store must be no
// other program's.
func (s *Store) Sweep(ctx context.Context, live func(context.Context) ([]blob.Digest, error)) (Swept, error) {
	swept, err := s.sweep(ctx, live, s.removeUnpinned)
	return swept, wrap("sweep blobs", err)
}

// Unneeded says what Sweep would remove now.
func (s *Store) Unneeded(ctx context.Context, live func(context.Context) ([]blob.Digest, error)) (Swept, error) {
	found, err := s.sweep(ctx, live, func(_ context.Context, d blob.Digest) (bool, error) {
		b, err := sumOf(d)
		return !s.pins.spares(b), err
	})
	return found, wrap("count blobs", err)
}

// sweep gives every blob that nothing needs to remove, which tells whether it goes.
func (s *Store) sweep(ctx context.Context, live func(context.Context) ([]blob.Digest, error), remove func(context.Context, blob.Digest) (bool, error)) (Swept, error) {
	var swept Swept
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	defer s.pins.watch()()
	needed, err := s.needed(ctx, live)
	if err != nil {
		return swept, err
	}
	var found []blob.Info
	err = s.blobs.List(ctx, func(i blob.Info) error {
		b, err := sumOf(i.Digest)
		if err == nil && !needed[b] {
			found = append(found, i)
		}
		return err
	})
	if err != nil {
		return swept, err
	}
	for _, i := range found {
		removed, err := remove(ctx, i.Digest)
		if err != nil {
			return swept, err
		}
		if removed {
			swept.Blobs++
			swept.Bytes += i.Size
		}
	}
	return swept, nil
}

func (s *Store) removeUnpinned(ctx context.Context, d blob.Digest) (bool, error) {
	b, err := sumOf(d)
	if err != nil {
		return false, err
	}
	done, ok := s.pins.take(b)
	if !ok {
		return false, nil
	}
	defer done()
	return true, s.blobs.Remove(ctx, d)
}

// needed is the set of the blobs of all live manifests, themselves included.
func (s *Store) needed(ctx context.Context, live func(context.Context) ([]blob.Digest, error)) (map[Sum]bool, error) {
	digests, err := live(ctx)
	if err != nil {
		return nil, err
	}
	needed := map[Sum]bool{}
	for _, d := range digests {
		b, err := sumOf(d)
		if err != nil {
			return nil, err
		}
		if needed[b] {
			continue
		}
		needed[b] = true
		m, err := s.manifest(ctx, d)
		if err != nil {
			return nil, &sandbox.Error{Op: fmt.Sprintf("read what %s needs", d), Err: err,
				Hint: "a snapshot or backup whose manifest is lost or damaged keeps the others' garbage: remove it"}
		}
		m.each(func(_ *File, c *Chunk) { needed[c.Blob] = true })
	}
	return needed, nil
}
