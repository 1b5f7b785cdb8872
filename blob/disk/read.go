package disk

import (
	"context"
	"crypto/sha256"
	"hash"
	"io"
	"os"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// newReader starts at offset, and checks the bytes if that is 0.
func newReader(ctx context.Context, f *os.File, d blob.Digest, offset int64) (io.ReadCloser, error) {
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if offset < 0 || offset > stat.Size() {
		return nil, sandbox.Errorf("", sandbox.Invalid, "offset %d is not 0 to %d, the size of %s", offset, stat.Size(), d)
	}
	if offset == 0 {
		return &checked{ctx: ctx, f: f, digest: d, sum: sha256.New()}, nil
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	return &unchecked{ctx: ctx, f: f}, nil
}

// checked reads a whole blob and compares it with its name at the end.
type checked struct {
	ctx    context.Context
	f      *os.File
	digest blob.Digest
	sum    hash.Hash
}

func (c *checked) Read(p []byte) (int, error) {
	n, err := readBlob(c.ctx, c.f, p)
	c.sum.Write(p[:n]) // never fails
	if err == io.EOF {
		if got := blob.DigestOf([32]byte(c.sum.Sum(nil))); got != c.digest {
			return n, sandbox.Errorf("read blob", sandbox.Internal, "the bytes of %s are damaged: they are of %s", c.digest, got)
		}
	}
	return n, err
}

func (c *checked) Close() error { return c.f.Close() }

// unchecked reads the tail of a blob.
type unchecked struct {
	ctx context.Context
	f   *os.File
}

func (u *unchecked) Read(p []byte) (int, error) { return readBlob(u.ctx, u.f, p) }
func (u *unchecked) Close() error               { return u.f.Close() }

func readBlob(ctx context.Context, f *os.File, p []byte) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, wrap("read blob", err)
	}
	n, err := f.Read(p)
	if err != nil && err != io.EOF {
		err = wrap("read blob", err)
	}
	return n, err
}
