package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Saved is what a save has stored. Until Release is called nothing of it is
// swept: whoever keeps the digest does so first.
type Saved struct {
	Digest blob.Digest // of the manifest
	Bytes  int64       // plain, without holes and zeros
	Stored int64       // of all blobs that it needs, shared ones too
	Added  int64       // of those that were not there before

	manifest *Manifest
	release  func()
}

// Release lets Sweep remove what no manifest that is known to it needs. It may
// be called twice.
func (s *Saved) Release() { s.release() }

// saving is one save under way.
type saving struct {
	store *Store
	known map[Sum]Chunk // by plain sum: what the bases have

	mu    sync.Mutex
	done  map[Sum]Chunk // by plain sum: what this save has stored or found
	pins  []Sum
	added int64
}

// Save keeps the regular files beneath dir, which nobody changes meanwhile, and
// returns when all of it is stored. about is kept with them. Chunks that one of
// bases holds are not compressed again; a base that is gone is passed over.
// Empty folders are not kept; anything that is no file or folder is Invalid.
func (s *Store) Save(ctx context.Context, dir string, about json.RawMessage, bases ...blob.Digest) (*Saved, error) {
	saved, err := s.save(ctx, dir, about, bases)
	return saved, wrap("save", err)
}

func (s *Store) save(ctx context.Context, dir string, about json.RawMessage, bases []blob.Digest) (_ *Saved, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	files, err := regularFiles(root)
	if err != nil {
		return nil, err
	}
	w, err := s.begin(ctx, bases)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.release()
		}
	}()
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(s.saves)
	for i := range files {
		if err = w.file(gctx, group, root, &files[i]); err != nil {
			break
		}
	}
	// The group's own error is the cause of what its context ended.
	if gerr := group.Wait(); gerr != nil {
		err = gerr
	}
	if err != nil {
		return nil, err
	}
	for i := range files {
		slices.SortFunc(files[i].Chunks, func(a, b Chunk) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return w.finish(ctx, &Manifest{Format: format, About: about, Files: files})
}

// regularFiles lists what is to be saved, small files first: they are what is
// needed first when it is loaded.
func regularFiles(root *os.Root) ([]File, error) {
	var files []File
	err := fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return sandbox.Errorf("", sandbox.Invalid, "%s is neither a file nor a folder", name)
		}
		files = append(files, File{Name: name, Size: info.Size(), Mode: uint32(info.Mode().Perm()), Chunks: []Chunk{}})
		return nil
	})
	slices.SortStableFunc(files, func(a, b File) int { return cmp.Compare(a.Size, b.Size) })
	return files, err
}

// begin prepares a save and learns what the bases have.
func (s *Store) begin(ctx context.Context, bases []blob.Digest) (*saving, error) {
	w := &saving{store: s, known: map[Sum]Chunk{}, done: map[Sum]Chunk{}}
	for _, d := range bases {
		m, err := s.manifest(ctx, d)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil || s.sealer != nil && !m.sealed {
			continue // it would only have spared work
		}
		m.each(func(_ *File, c *Chunk) { w.known[c.Plain] = *c })
	}
	return w, nil
}

func (w *saving) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.store.pins.drop(w.pins)
	w.pins = nil
}

// file hands the chunks of one file to the group, holes left out.
func (w *saving) file(ctx context.Context, group *errgroup.Group, root *os.Root, f *File) error {
	in, err := root.Open(f.Name)
	if err != nil {
		return err
	}
	var chunks sync.WaitGroup
	defer func() { group.Go(func() error { chunks.Wait(); return in.Close() }) }()
	for at := int64(0); at < f.Size; at += ChunkSize {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		data, err := unix.Seek(int(in.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // nothing but a hole is left
		}
		if err != nil {
			return fmt.Errorf("find data in %s: %w", f.Name, err)
		}
		if data >= f.Size {
			return nil
		}
		at = data - data%ChunkSize
		length := min(ChunkSize, f.Size-at)
		offset := at
		chunks.Add(1)
		group.Go(func() error {
			defer chunks.Done()
			return w.piece(ctx, in, f, offset, length)
		})
	}
	return nil
}

// piece reads one chunk of a file and stores it.
func (w *saving) piece(ctx context.Context, in io.ReaderAt, f *File, offset, length int64) error {
	buf := w.store.buffer(length)
	defer w.store.buffers.Put(buf)
	b := *buf
	if _, err := in.ReadAt(b, offset); err != nil {
		return fmt.Errorf("read %s at %d: %w", f.Name, offset, err)
	}
	if zero(b) {
		return nil
	}
	c, err := w.keep(ctx, b)
	if err != nil {
		return fmt.Errorf("%s at %d: %w", f.Name, offset, err)
	}
	c.Offset = offset
	w.mu.Lock()
	defer w.mu.Unlock()
	f.Chunks = append(f.Chunks, c)
	return nil
}

// keep makes sure that a chunk is stored, and returns it without its offset.
func (w *saving) keep(ctx context.Context, plain []byte) (Chunk, error) {
	sum := Sum(sha256.Sum256(plain))
	w.mu.Lock()
	c, ok := w.done[sum]
	w.mu.Unlock()
	if ok {
		return c, nil
	}
	if c, ok = w.known[sum]; ok && c.Length == int64(len(plain)) {
		there, err := w.there(ctx, &c)
		if err != nil {
			return c, err
		}
		if there {
			return w.record(sum, c, 0), nil
		}
	}
	return w.store.pack(ctx, w, sum, plain)
}

// pack compresses a chunk and stores it, unless that blob is there already.
func (s *Store) pack(ctx context.Context, w *saving, sum Sum, plain []byte) (Chunk, error) {
	buf := s.buffer(mostStored(int64(len(plain))))
	defer s.buffers.Put(buf)
	return s.store(ctx, w, Chunk{Length: int64(len(plain)), Plain: sum}, s.encoder.EncodeAll(plain, (*buf)[:0]))
}

// store stores the frame of a chunk, unless that blob is there already.
func (s *Store) store(ctx context.Context, w *saving, c Chunk, packed []byte) (Chunk, error) {
	buf := s.buffer(int64(len(packed)) + sealOverhead())
	defer s.buffers.Put(buf)
	stored := s.sealed((*buf)[:0], packed)
	c.Blob, c.Stored, c.Packed = sha256.Sum256(stored), int64(len(stored)), Sum{}
	if s.sealer != nil {
		c.Packed = sha256.Sum256(packed)
	}
	there, err := w.there(ctx, &c)
	if err != nil {
		return c, err
	}
	added := int64(0)
	if !there {
		if _, err := s.blobs.Put(ctx, bytes.NewReader(stored)); err != nil {
			return c, err
		}
		added = c.Stored
	}
	return w.record(c.Plain, c, added), nil
}

// there pins a chunk's blob and tells whether it is stored, with its whole size.
func (w *saving) there(ctx context.Context, c *Chunk) (bool, error) {
	if err := w.store.pins.hold(ctx, c.Blob); err != nil {
		return false, err
	}
	w.mu.Lock()
	w.pins = append(w.pins, c.Blob)
	w.mu.Unlock()
	info, err := w.store.blobs.Stat(ctx, c.Blob.digest())
	if sandbox.KindOf(err) == sandbox.NotFound {
		return false, nil
	}
	return err == nil && info.Size == c.Stored, err
}

func (w *saving) record(sum Sum, c Chunk, added int64) Chunk {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[sum] = c
	w.added += added
	return c
}

// finish stores the manifest.
func (w *saving) finish(ctx context.Context, m *Manifest) (*Saved, error) {
	plain, err := m.encode()
	if err != nil {
		return nil, err
	}
	packed := w.store.sealed(nil, w.store.encoder.EncodeAll(plain, nil))
	c := Chunk{Blob: sha256.Sum256(packed), Stored: int64(len(packed))}
	there, err := w.there(ctx, &c)
	if err != nil {
		return nil, err
	}
	if !there {
		if _, err := w.store.blobs.Put(ctx, bytes.NewReader(packed)); err != nil {
			return nil, err
		}
		w.added += c.Stored
	}
	return &Saved{Digest: c.Blob.digest(), Bytes: m.Bytes(), Stored: m.StoredBytes() + c.Stored, Added: w.added, manifest: m, release: w.release}, nil
}

// zeros is what a chunk of nothing is compared with.
var zeros = make([]byte, 64<<10)

func zero(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), len(zeros))
		if !bytes.Equal(b[:n], zeros[:n]) {
			return false
		}
		b = b[n:]
	}
	return true
}
