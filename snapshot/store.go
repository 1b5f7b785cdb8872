package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"runtime"
	"sync"
	"syscall"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// ChunkSize is how long a file's chunks are, in bytes.
const ChunkSize = 1 << 20

// Store keeps folders and streams in a blob store that nothing else uses. All
// methods may be called at once from many goroutines.
type Store struct {
	blobs blob.Store
	saves int // chunks compressed and stored at once, by one save
	loads int // chunks fetched at once, by one load
	late  int64
	pins  pins

	sealer *sealer // nil: blobs are not sealed

	sweeping sync.Mutex // held by the one sweep

	encoder *zstd.Encoder // EncodeAll alone
	decoder *zstd.Decoder // DecodeAll alone
	buffers sync.Pool     // of *[]byte
}

// Config is what a Store is made of.
type Config struct {
	Blobs blob.Store
	Saves int // chunks compressed and stored at once by one save; 0 means one a core, at least 4
	Loads int // chunks fetched and unpacked at once by one load; 0 means twice the cores, at least 8

	// Late is how many bytes a file has to have, without holes and zeros, that may come
	// later than others; 0 means 8 MiB.
	Late int64

	// Key, of KeySize bytes, seals all that is stored. Chunks are shared among what
	// was sealed with the same key. nil: nothing is sealed.
	Key []byte
}

// New returns a Store.
func New(c Config) (*Store, error) {
	if c.Blobs == nil || c.Saves < 0 || c.Loads < 0 || c.Late < 0 {
		return nil, sandbox.Errorf("make snapshot store", sandbox.Invalid, "blobs are needed; saves is %d, loads %d, late %d", c.Saves, c.Loads, c.Late)
	}
	if c.Late == 0 {
		c.Late = 8 << 20
	}
	if c.Saves == 0 {
		c.Saves = max(4, runtime.NumCPU())
	}
	if c.Loads == 0 {
		c.Loads = max(8, 2*runtime.NumCPU())
	}
	// The fastest level: memory and disks are mostly what compresses well at
	// any level, or at none.
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(c.Saves), zstd.WithEncoderCRC(false))
	if err != nil {
		return nil, sandbox.Errorf("make snapshot store", sandbox.Internal, "%w", err)
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(c.Loads), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxMemory(maxManifest))
	if err != nil {
		return nil, sandbox.Errorf("make snapshot store", sandbox.Internal, "%w", err)
	}
	s := &Store{blobs: c.Blobs, saves: c.Saves, loads: c.Loads, late: c.Late, encoder: encoder, decoder: decoder}
	s.buffers.New = func() any { return new([]byte) }
	if c.Key != nil {
		if s.sealer, err = newSealer(c.Key); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Manifest reads what is kept under a digest.
func (s *Store) Manifest(ctx context.Context, d blob.Digest) (*Manifest, error) {
	m, err := s.manifest(ctx, d)
	return m, wrap("read manifest", err)
}

func (s *Store) manifest(ctx context.Context, d blob.Digest) (*Manifest, error) {
	stored, err := s.fetch(ctx, d, mostStored(maxManifest))
	if err != nil {
		return nil, err
	}
	sealed := bytes.HasPrefix(stored, sealedMark)
	packed, err := s.opened(stored)
	if err != nil {
		return nil, err
	}
	plain, err := s.unpackManifest(packed)
	if err != nil {
		return nil, sandbox.Errorf("unpack manifest", sandbox.Internal, "%s is damaged: %w", d, err)
	}
	m, err := decodeManifest(plain)
	if err == nil {
		m.sealed = sealed
	}
	return m, err
}

// unpackManifest grows its buffer with what there is, not with what is said.
func (s *Store) unpackManifest(packed []byte) ([]byte, error) {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxManifest))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.DecodeAll(packed, nil)
}

// fetch reads a whole blob of at most so many bytes.
func (s *Store) fetch(ctx context.Context, d blob.Digest, most int64) ([]byte, error) {
	r, err := s.blobs.Open(ctx, d, 0)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, most+1)) // to the end: the store checks the bytes there
	if err == nil && int64(len(b)) > most {
		err = sandbox.Errorf("read blob", sandbox.Internal, "%s has more than %d bytes, which are expected", d, most)
	}
	return b, errors.Join(err, r.Close())
}

// chunk reads one chunk into buf, which has its length, and checks it.
func (s *Store) chunk(ctx context.Context, c *Chunk, buf []byte) error {
	scratch := s.buffer(c.Stored + 1)
	defer s.buffers.Put(scratch)
	r, err := s.blobs.Open(ctx, c.Blob.digest(), 0)
	if err != nil {
		return err
	}
	stored, err := readExactly(r, *scratch)
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	packed, err := s.opened(stored)
	if err != nil {
		return err
	}
	if err := s.unpack(c, packed, buf); err != nil {
		return sandbox.Errorf("unpack chunk", sandbox.Internal, "%s is damaged: %w", c.Blob.digest(), err)
	}
	return nil
}

// buffer takes one of so many bytes from the pool.
func (s *Store) buffer(n int64) *[]byte {
	b := s.buffers.Get().(*[]byte)
	if int64(cap(*b)) < n {
		*b = make([]byte, max(n, mostStored(ChunkSize)))
	}
	*b = (*b)[:n]
	return b
}

// readExactly reads r to its end, which must come one byte before that of buf:
// the store checks the bytes with the read that meets the end.
func readExactly(r io.Reader, buf []byte) ([]byte, error) {
	n, err := io.ReadFull(r, buf)
	switch {
	case err == nil || n < len(buf)-1 && (err == io.ErrUnexpectedEOF || err == io.EOF):
		return nil, sandbox.Errorf("read blob", sandbox.Internal, "it does not have %d bytes", len(buf)-1)
	case err != io.ErrUnexpectedEOF && err != io.EOF:
		return nil, err
	}
	return buf[:n], nil
}

// unpack decodes one chunk into buf and compares it with its sum.
func (s *Store) unpack(c *Chunk, packed, buf []byte) error {
	got, err := s.decoder.DecodeAll(packed, buf[:0:c.Length])
	if err != nil {
		return err
	}
	if int64(len(got)) != c.Length || Sum(sha256.Sum256(got)) != c.Plain {
		return errors.New("its bytes are not those that were kept")
	}
	copy(buf, got) // which are the same, unless the decoder made a buffer of its own
	return nil
}

// wrap puts op before err and gives it a kind.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &sandbox.Error{Op: op, Kind: sandbox.KindOf(err), Err: err}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		e.Kind, e.Hint = sandbox.Exhausted, "free space on the disk that holds the data directory"
	}
	return e
}
