package snapshot

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// format is the version of the manifests that are written, and the only one that
// is read.
const format = 1

// Bounds on a manifest, whoever wrote it.
const (
	maxManifest = 256 << 20 // bytes, unpacked
	maxAbout    = 64 << 10  // bytes
	maxFiles    = 4096
	maxName     = 255      // bytes of a file's name with its folders
	maxFileSize = 64 << 40 // bytes, holes included
	maxChunk    = 8 << 20  // bytes of one chunk, unpacked
	maxChunks   = 1 << 20  // of one manifest
)

// Manifest tells what is kept, and where.
type Manifest struct {
	Format int             `json:"format"`
	About  json.RawMessage `json:"about"` // the owner's own words, a JSON value of at most 64 KiB
	Files  []File          `json:"files"` // in the order in which they are loaded: small ones first

	sealed bool // it was read from a sealed blob, and so are all of its chunks
}

// File is one file or stream.
type File struct {
	Name   string  `json:"name"` // slash-separated, relative, local
	Size   int64   `json:"size"` // bytes, holes included
	Mode   uint32  `json:"mode"` // permission bits
	Chunks []Chunk `json:"chunks"`
}

// Chunk is one stretch of a file that is not all zeros.
type Chunk struct {
	Offset int64 `json:"offset"` // in the file; a chunk begins where the one before ends, or later
	Length int64 `json:"length"` // plain bytes; 1 to 8 MiB
	Plain  Sum   `json:"plain"`  // of the plain bytes
	Blob   Sum   `json:"blob"`   // names the blob: the chunk as one zstd frame, sealed if the store seals
	Stored int64 `json:"stored"` // bytes of the blob

	Packed Sum `json:"packed,omitzero"` // of the frame, if the blob is sealed
}

// Sum is a SHA-256 sum, 64 hex digits in JSON.
type Sum [32]byte

// MarshalText implements encoding.TextMarshaler.
func (s Sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Sum) UnmarshalText(text []byte) error {
	if len(text) != hex.EncodedLen(len(s)) {
		return fmt.Errorf("a sum has %d hex digits, this has %d", hex.EncodedLen(len(s)), len(text))
	}
	_, err := hex.Decode(s[:], text)
	return err
}

func (s Sum) digest() blob.Digest { return blob.DigestOf(s) }

// sumOf is the Sum that a digest names.
func sumOf(d blob.Digest) (Sum, error) {
	var s Sum
	if _, err := blob.ParseDigest(string(d)); err != nil {
		return s, err
	}
	return s, s.UnmarshalText([]byte(d.Hex()))
}

// Bytes is the plain size of what is kept, holes and zeros left out.
func (m *Manifest) Bytes() (n int64) {
	m.each(func(_ *File, c *Chunk) { n += c.Length })
	return n
}

// StoredBytes is the size of the blobs that the manifest needs, each counted
// once, itself left out.
func (m *Manifest) StoredBytes() (n int64) {
	seen := map[Sum]bool{}
	m.each(func(_ *File, c *Chunk) {
		if !seen[c.Blob] {
			seen[c.Blob], n = true, n+c.Stored
		}
	})
	return n
}

func (m *Manifest) each(f func(*File, *Chunk)) {
	for i := range m.Files {
		for j := range m.Files[i].Chunks {
			f(&m.Files[i], &m.Files[i].Chunks[j])
		}
	}
}

// file finds a file by name.
func (m *Manifest) file(name string) (*File, error) {
	for i := range m.Files {
		if m.Files[i].Name == name {
			return &m.Files[i], nil
		}
	}
	return nil, sandbox.Errorf("find file", sandbox.NotFound, "there is no file %.80q in it", name)
}

// encode gives the manifest's plain bytes.
func (m *Manifest) encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	b, err := json.Marshal(m)
	if err == nil && len(b) > maxManifest {
		return nil, sandbox.Errorf("encode manifest", sandbox.Invalid, "it has %d bytes, at most %d are taken", len(b), maxManifest)
	}
	return b, err
}

// decodeManifest reads plain bytes that anybody may have written.
func decodeManifest(b []byte) (*Manifest, error) {
	const op = "decode manifest"
	m := &Manifest{}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	var version struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "%w", err)
	}
	if version.Format != format {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Unsupported, Err: fmt.Errorf("it is of format %d, this program reads %d", version.Format, format),
			Hint: "use the version of berth that wrote it, or a newer one"}
	}
	if err := dec.Decode(m); err != nil {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "%w", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "something follows it")
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	return m, nil
}

// check reports the first thing that is wrong, as Invalid.
func (m *Manifest) check() error {
	const op = "check manifest"
	if m.Format != format {
		return sandbox.Errorf(op, sandbox.Invalid, "format is %d", m.Format)
	}
	if len(m.About) > maxAbout || !json.Valid(m.About) {
		return sandbox.Errorf(op, sandbox.Invalid, "about has %d bytes; one JSON value of at most %d is taken", len(m.About), maxAbout)
	}
	if len(m.Files) > maxFiles {
		return sandbox.Errorf(op, sandbox.Invalid, "%d files, at most %d are taken", len(m.Files), maxFiles)
	}
	chunks, names := 0, map[string]bool{}
	for i := range m.Files {
		f := &m.Files[i]
		if err := f.check(); err != nil {
			return sandbox.Errorf(op, sandbox.Invalid, "file %d, %.80q: %w", i, f.Name, err)
		}
		if names[f.Name] {
			return sandbox.Errorf(op, sandbox.Invalid, "%q comes twice", f.Name)
		}
		names[f.Name] = true
		if chunks += len(f.Chunks); chunks > maxChunks {
			return sandbox.Errorf(op, sandbox.Invalid, "more than %d chunks", maxChunks)
		}
	}
	return noFileAsFolder(names)
}

func (f *File) check() error {
	switch {
	case f.Name == "" || f.Name == "." || len(f.Name) > maxName || path.Clean(f.Name) != f.Name || !filepath.IsLocal(f.Name) || strings.ContainsAny(f.Name, "\x00\\"):
		return fmt.Errorf("that is not a name")
	case f.Size < 0 || f.Size > maxFileSize:
		return fmt.Errorf("its size is %d", f.Size)
	case f.Mode&^0o777 != 0:
		return fmt.Errorf("its mode is %#o", f.Mode)
	}
	end := int64(0)
	for i, c := range f.Chunks {
		if c.Length < 1 || c.Length > maxChunk || c.Offset < end || c.Offset > f.Size-c.Length {
			return fmt.Errorf("chunk %d: %d bytes at %d, after %d of %d", i, c.Length, c.Offset, end, f.Size)
		}
		if c.Stored < 1 || c.Stored > mostStored(c.Length) {
			return fmt.Errorf("chunk %d: %d bytes are stored as %d", i, c.Length, c.Stored)
		}
		end = c.Offset + c.Length
	}
	return nil
}

// mostStored is the most bytes that the frame of so many plain ones has: raw
// blocks with their headers.
func mostStored(length int64) int64 { return length + length>>10 + 1024 }

// noFileAsFolder refuses names of which one is the folder of another.
func noFileAsFolder(names map[string]bool) error {
	for name := range names {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if names[dir] {
				return sandbox.Errorf("check manifest", sandbox.Invalid, "%q is a file, and the folder of %q", dir, name)
			}
		}
	}
	return nil
}
