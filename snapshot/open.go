package snapshot

import (
	"context"
	"io"
	"sort"
	"sync"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// openChunks is how many chunks an open file keeps unpacked.
const openChunks = 4

// Reader reads one stored file, fetching chunks as they are asked for. It may be
// used by many goroutines at once; it fails once the context it was opened with
// has ended.
type Reader struct {
	ctx   context.Context
	store *Store
	file  *File

	mu     sync.Mutex
	recent []unpacked // the last used first
}

// unpacked is one chunk's bytes.
type unpacked struct {
	index int
	plain []byte
}

var _ io.ReaderAt = (*Reader)(nil)

// Open opens the file of that name of a manifest.
func (s *Store) Open(ctx context.Context, d blob.Digest, name string) (*Reader, error) {
	const op = "open stored file"
	m, err := s.manifest(ctx, d)
	if err != nil {
		return nil, wrap(op, err)
	}
	f, err := m.file(name)
	if err != nil {
		return nil, wrap(op, err)
	}
	return &Reader{ctx: ctx, store: s, file: f}, nil
}

// Size is the file's size in bytes, holes included.
func (r *Reader) Size() int64 { return r.file.Size }

// ReadAt implements io.ReaderAt.
func (r *Reader) ReadAt(p []byte, offset int64) (int, error) {
	if offset < 0 {
		return 0, sandbox.Errorf("read stored file", sandbox.Invalid, "the offset is %d", offset)
	}
	if offset >= r.file.Size {
		return 0, io.EOF
	}
	want := p[:min(int64(len(p)), r.file.Size-offset)]
	for done := 0; done < len(want); {
		n, err := r.some(want[done:], offset+int64(done))
		if err != nil {
			return done, wrap("read stored file", err)
		}
		done += n
	}
	if len(want) < len(p) {
		return len(want), io.EOF
	}
	return len(want), nil
}

// some fills the beginning of p: what one chunk has, or a hole.
func (r *Reader) some(p []byte, offset int64) (int, error) {
	chunks := r.file.Chunks
	i := sort.Search(len(chunks), func(i int) bool { return chunks[i].Offset+chunks[i].Length > offset })
	if i == len(chunks) || chunks[i].Offset > offset {
		n := int64(len(p))
		if i < len(chunks) {
			n = min(n, chunks[i].Offset-offset)
		}
		clear(p[:n])
		return int(n), nil
	}
	plain, err := r.plain(i)
	if err != nil {
		return 0, err
	}
	return copy(p, plain[offset-chunks[i].Offset:]), nil
}

// plain returns a chunk's bytes, which nobody changes.
func (r *Reader) plain(i int) ([]byte, error) {
	r.mu.Lock()
	for k, u := range r.recent {
		if u.index == i {
			copy(r.recent[1:k+1], r.recent[:k])
			r.recent[0] = u
			r.mu.Unlock()
			return u.plain, nil
		}
	}
	r.mu.Unlock()
	c := &r.file.Chunks[i]
	b := make([]byte, c.Length)
	if err := r.store.chunk(r.ctx, c, b); err != nil {
		return nil, chunkError(r.file, i, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.recent) < openChunks {
		r.recent = append(r.recent, unpacked{})
	}
	copy(r.recent[1:], r.recent)
	r.recent[0] = unpacked{i, b}
	return b, nil
}
