package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/restic/chunker"
	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// The cuts of a stream: they depend on its content alone, so two streams that
// share a stretch share most of its chunks.
const (
	polynomial  = chunker.Pol(0x3DA3358B4DC173)
	leastPiece  = 256 << 10
	mostPiece   = 4 << 20
	averageBits = 20
)

// SaveStream keeps what r gives as a file of that name, and returns when all of
// it is stored. More than most bytes are Exhausted. An error of r's is returned
// wrapped, and nothing is kept.
func (s *Store) SaveStream(ctx context.Context, name string, r io.Reader, most int64, about json.RawMessage, bases ...blob.Digest) (*Saved, error) {
	saved, err := s.saveStream(ctx, name, r, most, about, bases)
	return saved, wrap("save", err)
}

func (s *Store) saveStream(ctx context.Context, name string, r io.Reader, most int64, about json.RawMessage, bases []blob.Digest) (_ *Saved, err error) {
	w, err := s.begin(ctx, bases)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.release()
		}
	}()
	f := File{Name: name, Mode: 0o600, Chunks: []Chunk{}}
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(s.saves)
	err = w.cut(gctx, group, &f, r, most)
	if gerr := group.Wait(); gerr != nil {
		err = gerr
	}
	if err != nil {
		return nil, err
	}
	// A piece of zeros alone stays a hole.
	kept := f.Chunks[:0]
	for _, c := range f.Chunks {
		if c.Length > 0 {
			kept = append(kept, c)
		}
	}
	f.Chunks = kept
	return w.finish(ctx, &Manifest{Format: format, About: about, Files: []File{f}})
}

// cut reads a stream to its end and hands its pieces to the group.
func (w *saving) cut(ctx context.Context, group *errgroup.Group, f *File, r io.Reader, most int64) error {
	cutter := chunker.NewWithBoundaries(&until{ctx, r}, polynomial, leastPiece, mostPiece)
	cutter.SetAverageBits(averageBits)
	for i := 0; ; i++ {
		buf := w.store.buffer(mostPiece)
		piece, err := cutter.Next(*buf)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read at %d: %w", f.Size, err)
		}
		offset := f.Size
		if f.Size += int64(piece.Length); f.Size > most {
			return &sandbox.Error{Op: "read", Kind: sandbox.Exhausted, Err: fmt.Errorf("there are more than %d bytes", most),
				Hint: "leave out what need not be kept, or ask for a larger bound"}
		}
		w.mu.Lock()
		f.Chunks = append(f.Chunks, Chunk{})
		w.mu.Unlock()
		group.Go(func() error {
			defer w.store.buffers.Put(buf)
			if zero(piece.Data) {
				return nil
			}
			c, err := w.keep(ctx, piece.Data)
			if err != nil {
				return fmt.Errorf("%s at %d: %w", f.Name, offset, err)
			}
			c.Offset = offset
			w.mu.Lock()
			defer w.mu.Unlock()
			f.Chunks[i] = c
			return nil
		})
	}
}

// until ends a read between two calls once its context has ended.
type until struct {
	ctx context.Context
	r   io.Reader
}

func (u *until) Read(p []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, context.Cause(u.ctx)
	}
	return u.r.Read(p)
}

// Stream reads a stored file from its beginning to its end.
func (s *Store) Stream(ctx context.Context, d blob.Digest, name string) (io.Reader, error) {
	r, err := s.Open(ctx, d, name)
	if err != nil {
		return nil, err
	}
	return io.NewSectionReader(r, 0, r.Size()), nil
}

// Verify reads and checks all that is kept under a digest.
func (s *Store) Verify(ctx context.Context, d blob.Digest) error {
	return wrap("verify "+string(d), s.verify(ctx, d))
}

func (s *Store) verify(ctx context.Context, d blob.Digest) error {
	m, err := s.manifest(ctx, d)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.loads)
	for i := range m.Files {
		f := &m.Files[i]
		for j := range f.Chunks {
			if ctx.Err() != nil {
				return errors.Join(group.Wait(), context.Cause(ctx))
			}
			group.Go(func() error {
				buf := s.buffer(f.Chunks[j].Length)
				defer s.buffers.Put(buf)
				if err := s.chunk(ctx, &f.Chunks[j], *buf); err != nil {
					return chunkError(f, j, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}
