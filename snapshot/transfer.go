package snapshot

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// An exported file is a tar stream: what its owner puts first, its label, the manifest
// as it is stored, and every chunk that it needs, once each, in the order of their
// first use.
const (
	labelEntry    = "berth-snapshot.json"
	manifestEntry = "manifest.zst"
	chunkPrefix   = "chunks/"
	maxLabel      = 1 << 10 // bytes
)

// label says what a stream is.
type label struct {
	Format   int         `json:"format"`
	Manifest blob.Digest `json:"manifest"`
}

// Export writes all that is kept under a digest as one stream that Import reads.
// Every chunk is checked on its way. What first writes comes before all else; it may
// be nil.
func (s *Store) Export(ctx context.Context, d blob.Digest, to io.Writer, first func(*tar.Writer) error) error {
	return wrap("export "+string(d), s.export(ctx, d, to, first))
}

func (s *Store) export(ctx context.Context, d blob.Digest, to io.Writer, first func(*tar.Writer) error) error {
	m, err := s.manifest(ctx, d)
	if err != nil {
		return err
	}
	packed, err := s.portable(ctx, d, m)
	if err != nil {
		return err
	}
	b, err := json.Marshal(label{format, blob.DigestOf(sha256.Sum256(packed))})
	if err != nil {
		return err
	}
	out := tar.NewWriter(to)
	if first != nil {
		if err := first(out); err != nil {
			return err
		}
	}
	if err := errors.Join(writeEntry(out, labelEntry, b), writeEntry(out, manifestEntry, packed)); err != nil {
		return err
	}
	done := map[Sum]bool{}
	for i := range m.Files {
		for j := range m.Files[i].Chunks {
			c := &m.Files[i].Chunks[j]
			if done[c.Blob] {
				continue
			}
			done[c.Blob] = true
			if err := s.exportChunk(ctx, out, c); err != nil {
				return chunkError(&m.Files[i], j, err)
			}
		}
	}
	return out.Close()
}

// portable is the frame of a manifest that anybody can read: where it is sealed, one
// that names the chunks by their frames. An exported file is not sealed.
func (s *Store) portable(ctx context.Context, d blob.Digest, m *Manifest) ([]byte, error) {
	if !m.sealed {
		return s.fetch(ctx, d, mostStored(maxManifest))
	}
	open := *m
	open.Files = slices.Clone(m.Files)
	for i := range open.Files {
		f := &open.Files[i]
		f.Chunks = slices.Clone(f.Chunks)
		for j, c := range f.Chunks {
			f.Chunks[j].Blob, f.Chunks[j].Stored, f.Chunks[j].Packed = c.frame(), c.Stored-sealOverhead(), Sum{}
		}
	}
	plain, err := open.encode()
	if err != nil {
		return nil, err
	}
	return s.encoder.EncodeAll(plain, nil), nil
}

// frame is the sum of a chunk's zstd frame.
func (c *Chunk) frame() Sum {
	if c.Packed != (Sum{}) {
		return c.Packed
	}
	return c.Blob
}

func (s *Store) exportChunk(ctx context.Context, out *tar.Writer, c *Chunk) error {
	stored, err := s.fetch(ctx, c.Blob.digest(), c.Stored)
	if err != nil {
		return err
	}
	packed, err := s.opened(stored)
	if err != nil {
		return err
	}
	buf := s.buffer(c.Length)
	defer s.buffers.Put(buf)
	if err := s.unpack(c, packed, *buf); err != nil {
		return sandbox.Errorf("unpack chunk", sandbox.Internal, "%s is damaged: %w", c.Blob.digest(), err)
	}
	return writeEntry(out, chunkPrefix+c.frame().digest().Hex(), packed)
}

func writeEntry(out *tar.Writer, name string, b []byte) error {
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(b))}); err != nil {
		return err
	}
	_, err := out.Write(b)
	return err
}

// Accept judges a manifest before any chunk of it is stored.
type Accept func(*Manifest) error

// Import keeps what a stream of Export's holds. The stream may be anybody's:
// before its first chunk the manifest is checked and put before accept, nothing
// is taken that the manifest does not name, each chunk must unpack to what it
// claims, and none counts as there only because it is claimed. What breaks a rule
// is Invalid, and nothing is kept of the stream.
//
// An entry that comes before the label is given to first, which also reads those that
// belong to it; without first there must be none.
func (s *Store) Import(ctx context.Context, from io.Reader, first First, accept Accept) (*Saved, *Manifest, error) {
	saved, m, err := s.importFrom(ctx, from, first, accept)
	return saved, m, wrap("import", err)
}

// First reads what an exporter has put before the label of a stream.
type First func(h *tar.Header, in *tar.Reader) error

func (s *Store) importFrom(ctx context.Context, from io.Reader, first First, accept Accept) (_ *Saved, _ *Manifest, err error) {
	in := tar.NewReader(&until{ctx, from})
	h, err := in.Next()
	if err == nil && h.Name != labelEntry && first != nil {
		if err := first(h, in); err != nil {
			return nil, nil, err
		}
		h, err = in.Next()
	}
	if err != nil {
		return nil, nil, malformed(noEOF(err))
	}
	m, err := s.readHead(h, in)
	if err != nil {
		return nil, nil, err
	}
	wanted, err := m.wanted()
	if err != nil {
		return nil, nil, err
	}
	if err := accept(m); err != nil {
		return nil, nil, err
	}
	w, err := s.begin(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			w.release()
		}
	}()
	taken := make(map[Sum]Chunk, len(wanted))
	for len(wanted) > 0 {
		c, packed, err := nextChunk(in, wanted)
		if err != nil {
			return nil, nil, err
		}
		delete(wanted, c.Blob)
		kept, err := w.take(ctx, c, packed)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", m.partOf(c.Blob), err)
		}
		taken[c.Blob] = kept
	}
	if _, err := in.Next(); err != io.EOF {
		return nil, nil, malformed(errors.Join(errors.New("something follows the last chunk"), err))
	}
	m.each(func(_ *File, c *Chunk) { // they may be sealed here
		kept := taken[c.Blob]
		c.Blob, c.Stored, c.Packed = kept.Blob, kept.Stored, kept.Packed
	})
	saved, err := w.finish(ctx, m)
	return saved, m, err
}

// readHead reads the label and the manifest.
func (s *Store) readHead(h *tar.Header, in *tar.Reader) (*Manifest, error) {
	b, err := readBody(h, in, labelEntry, maxLabel)
	if err != nil {
		return nil, err
	}
	var l label
	if err := json.Unmarshal(b, &l); err != nil {
		return nil, malformed(err)
	}
	if l.Format != format {
		return nil, &sandbox.Error{Op: "read label", Kind: sandbox.Unsupported, Err: fmt.Errorf("it is of format %d, this program reads %d", l.Format, format),
			Hint: "use the version of berth that wrote it, or a newer one"}
	}
	packed, err := readEntry(in, manifestEntry, mostStored(maxManifest))
	if err != nil {
		return nil, err
	}
	if blob.DigestOf(sha256.Sum256(packed)) != l.Manifest {
		return nil, malformed(errors.New("the manifest is not the one of the label"))
	}
	plain, err := s.unpackManifest(packed)
	if err != nil {
		return nil, malformed(fmt.Errorf("unpack manifest: %w", err))
	}
	return decodeManifest(plain)
}

// wanted are the chunks that a stream must bring, by blob. Two that share a blob
// must agree on it.
func (m *Manifest) wanted() (map[Sum]*Chunk, error) {
	all := map[Sum]*Chunk{}
	var err error
	m.each(func(f *File, c *Chunk) {
		other, ok := all[c.Blob]
		if !ok {
			all[c.Blob] = c
		} else if other.Plain != c.Plain || other.Length != c.Length || other.Stored != c.Stored {
			err = malformed(fmt.Errorf("%s says two things of %s", f.Name, c.Blob.digest()))
		}
	})
	return all, err
}

// partOf says where a blob's chunk belongs, for people.
func (m *Manifest) partOf(b Sum) string {
	for i := range m.Files {
		for j := range m.Files[i].Chunks {
			if m.Files[i].Chunks[j].Blob == b {
				return fmt.Sprintf("chunk %d of %s", j, m.Files[i].Name)
			}
		}
	}
	return "chunk " + string(b.digest())
}

// nextChunk reads one entry, which must be wanted.
func nextChunk(in *tar.Reader, wanted map[Sum]*Chunk) (*Chunk, []byte, error) {
	h, err := in.Next()
	if err != nil {
		return nil, nil, malformed(fmt.Errorf("%d chunks are missing: %w", len(wanted), noEOF(err)))
	}
	var b Sum
	hex, ok := strings.CutPrefix(h.Name, chunkPrefix)
	if !ok || h.Typeflag != tar.TypeReg || b.UnmarshalText([]byte(hex)) != nil {
		return nil, nil, malformed(fmt.Errorf("%.100q is no chunk", h.Name))
	}
	c := wanted[b]
	if c == nil || h.Size != c.Stored {
		return nil, nil, malformed(fmt.Errorf("%s, of %d bytes, is not wanted, or not so", h.Name, h.Size))
	}
	packed := make([]byte, c.Stored)
	if _, err := io.ReadFull(in, packed); err != nil {
		return nil, nil, malformed(fmt.Errorf("%s: %w", h.Name, noEOF(err)))
	}
	return c, packed, nil
}

// take checks a chunk that came from outside and stores it.
func (w *saving) take(ctx context.Context, c *Chunk, packed []byte) (Chunk, error) {
	if Sum(sha256.Sum256(packed)) != c.Blob {
		return *c, malformed(fmt.Errorf("%s has other bytes than its name says", c.Blob.digest()))
	}
	buf := w.store.buffer(c.Length)
	defer w.store.buffers.Put(buf)
	if err := w.store.unpack(c, packed, *buf); err != nil {
		return *c, malformed(fmt.Errorf("%s: %w", c.Blob.digest(), err))
	}
	return w.store.store(ctx, w, *c, packed)
}

// readEntry reads the next entry, which must be a file of that name of at most so
// many bytes.
func readEntry(in *tar.Reader, name string, most int64) ([]byte, error) {
	h, err := in.Next()
	if err != nil {
		return nil, malformed(noEOF(err))
	}
	return readBody(h, in, name, most)
}

// readBody is readEntry of one whose header has been read.
func readBody(h *tar.Header, in io.Reader, name string, most int64) ([]byte, error) {
	if h.Name != name || h.Typeflag != tar.TypeReg || h.Size > most {
		return nil, malformed(fmt.Errorf("%.100q, of %d bytes, stands where %s should, of at most %d", h.Name, h.Size, name, most))
	}
	// What is claimed is not allocated before it has come.
	b, err := io.ReadAll(in)
	if err != nil {
		return nil, malformed(noEOF(err))
	}
	return b, nil
}

// malformed is the error of a stream that is not one of Export's. An error that
// has a kind keeps it: it is the transport's.
func malformed(err error) error {
	e := &sandbox.Error{Op: "read exported snapshot", Kind: sandbox.Invalid, Err: err,
		Hint: "give a file that berth snapshot export wrote, whole"}
	var known *sandbox.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		e.Kind, e.Hint = "", ""
	}
	return e
}

// noEOF makes an end that came too early an error of its own.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
