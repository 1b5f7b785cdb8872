package image

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/sandbox"
)

// A root image in a tar stream is what is said of it, followed by its pieces in their
// order, each a zstd frame.
const (
	// RootEntry is the name of the first entry.
	RootEntry = "root/about.json"

	piecePrefix = "root/piece-"
	pieceSize   = 4 << 20 // of all but the last, in plain bytes
	maxPiece    = pieceSize + pieceSize>>8
	maxRoot     = 64 << 30 // bytes of an image
)

// rootAbout is what is said of an image. A template's name, its account and its policy
// stay where they are.
type rootAbout struct {
	Format   int             `json:"format"`
	Template json.RawMessage `json:"template"` // a sandbox.Template
	Sum      string          `json:"sum"`      // SHA-256 of Template's bytes, in hex; from format 2 on
}

// Formats of rootAbout: the first had no sum, and is still read.
const (
	rootFormat    = 2
	rootFormatOld = 1
)

// aboutRoot says of a template what belongs to its image.
func aboutRoot(t sandbox.Template) ([]byte, error) {
	b, err := json.Marshal(bareTemplate(t))
	if err != nil {
		return nil, err
	}
	return json.Marshal(rootAbout{Format: rootFormat, Template: b, Sum: fmt.Sprintf("%x", sha256.Sum256(b))})
}

// WriteRoot writes the root image of a digest into a stream that TakeRoot reads.
func (s *Store) WriteRoot(ctx context.Context, digest string, out *tar.Writer) error {
	return fault("write root image", s.writeRoot(ctx, digest, out))
}

func (s *Store) writeRoot(ctx context.Context, digest string, out *tar.Writer) error {
	e, err := s.lookup(digest)
	if err != nil {
		return err
	}
	f, err := os.Open(s.RootPath(e.Template))
	if err != nil {
		return err
	}
	defer f.Close()
	b, err := aboutRoot(e.Template)
	if err != nil {
		return err
	}
	if err := writePart(out, RootEntry, b); err != nil {
		return err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return err
	}
	defer encoder.Close()
	piece, packed := make([]byte, pieceSize), []byte(nil)
	for at := int64(0); at < e.Template.Size; at += pieceSize {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(pieceSize, e.Template.Size-at)
		if _, err := f.ReadAt(piece[:n], at); err != nil {
			return fmt.Errorf("read at %d: %w", at, err)
		}
		packed = encoder.EncodeAll(piece[:n], packed[:0])
		if err := writePart(out, pieceName(at), packed); err != nil {
			return err
		}
	}
	return nil
}

func pieceName(at int64) string { return fmt.Sprintf("%s%08x.zst", piecePrefix, at/pieceSize) }

// bareTemplate is what of a template belongs to its image.
func bareTemplate(t sandbox.Template) sandbox.Template {
	return sandbox.Template{Source: t.Source, Digest: t.Digest, Size: t.Size, Env: t.Env, Workdir: t.Workdir, User: t.User, Created: t.Created}
}

func writePart(out *tar.Writer, name string, b []byte) error {
	if err := out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(b))}); err != nil {
		return err
	}
	_, err := out.Write(b)
	return err
}

// TakeRoot keeps the root image that a stream holds, of which h is the header of the
// first entry, and returns its digest. It has no name: Prune removes it unless it is
// claimed. An image that is there already is kept as it is. The bytes must be those
// that the digest names; anything else is Invalid, and nothing is kept.
func (s *Store) TakeRoot(ctx context.Context, h *tar.Header, in *tar.Reader) (string, error) {
	digest, err := s.takeRoot(ctx, h, in)
	return digest, fault("read root image", err)
}

func (s *Store) takeRoot(ctx context.Context, h *tar.Header, in *tar.Reader) (digest string, err error) {
	t, err := readRootAbout(h, in)
	if err != nil {
		return "", err
	}
	unlock, err := s.building.Lock(ctx, "root "+t.Digest)
	if err != nil {
		return "", err
	}
	defer unlock()
	if s.imageIsThere(t) {
		return t.Digest, eachPiece(ctx, t, in, nil)
	}
	w, err := s.newWork()
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.remove()) }()
	f, err := os.OpenFile(w.image(), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	err = eachPiece(ctx, t, in, func(b []byte) error { _, err := f.Write(b); return err })
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	got, size, err := seal(ctx, w.image(), func(sandbox.Progress) {})
	if err != nil {
		return "", err
	}
	if got != t.Digest || size != t.Size {
		return "", badRoot("it is not %s but %s", t.Digest, got)
	}
	return t.Digest, s.publishImage(w.image(), entry{Template: t, Key: "taken " + t.Digest})
}

// readRootAbout reads what a stream says of the image in it.
func readRootAbout(h *tar.Header, in io.Reader) (t sandbox.Template, err error) {
	if h.Name != RootEntry || h.Typeflag != tar.TypeReg || h.Size > maxEntry {
		return t, badRoot("%.100q, of %d bytes, stands at its beginning", h.Name, h.Size)
	}
	b, err := io.ReadAll(in)
	if err != nil {
		return t, err
	}
	var a rootAbout
	if err := json.Unmarshal(b, &a); err != nil {
		return t, badRoot("%w", err)
	}
	switch {
	case a.Format != rootFormat && a.Format != rootFormatOld:
		return t, &sandbox.Error{Kind: sandbox.Unsupported, Err: fmt.Errorf("it is of format %d, this program reads %d", a.Format, rootFormat),
			Hint: "use the version of berth that wrote it, or a newer one"}
	case a.Format == rootFormat && a.Sum != fmt.Sprintf("%x", sha256.Sum256(a.Template)):
		return t, badRoot("%s: its bytes are not those that were written", RootEntry)
	}
	if err := json.Unmarshal(a.Template, &t); err != nil {
		return t, badRoot("%w", err)
	}
	if err := errors.Join(checkDigest(t.Digest), sandbox.CheckEnv(t.Env)); err != nil {
		return t, err
	}
	if t.Size < 1 || t.Size > maxRoot {
		return t, badRoot("it has %d bytes, 1 to %d are taken", t.Size, int64(maxRoot))
	}
	return bareTemplate(t), nil
}

// eachPiece reads the pieces of an image and gives them to keep; nil passes over them.
func eachPiece(ctx context.Context, t sandbox.Template, in *tar.Reader, keep func([]byte) error) error {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return err
	}
	defer decoder.Close()
	plain := make([]byte, pieceSize)
	for at := int64(0); at < t.Size; at += pieceSize {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := in.Next()
		if err != nil {
			return badRoot("it ends after %d of %d bytes: %w", at, t.Size, err)
		}
		if h.Name != pieceName(at) || h.Typeflag != tar.TypeReg || h.Size > maxPiece {
			return badRoot("%.100q, of %d bytes, stands where %s should", h.Name, h.Size, pieceName(at))
		}
		if keep == nil {
			continue // Next passes over it
		}
		var packed bytes.Buffer
		if _, err := io.Copy(&packed, in); err != nil {
			return badRoot("%s: %w", h.Name, err)
		}
		b, err := decoder.DecodeAll(packed.Bytes(), plain[:0])
		if err != nil || int64(len(b)) != min(pieceSize, t.Size-at) {
			return badRoot("%s: %w", h.Name, errors.Join(err, fmt.Errorf("it has %d bytes", len(b))))
		}
		if err := keep(b); err != nil {
			return err
		}
	}
	return nil
}

// badRoot is Invalid, unless what is wrapped has a kind: that is the transport's.
func badRoot(format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	var known *sandbox.Error
	if errors.As(err, &known) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return invalid("give a file that berth snapshot export wrote, whole", "%w", err)
}
