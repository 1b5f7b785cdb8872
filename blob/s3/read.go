package s3

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Open implements blob.Store. A body that breaks off is asked for again from
// where it broke, as often as a request is tried.
func (s *Store) Open(ctx context.Context, d blob.Digest, offset int64) (io.ReadCloser, error) {
	const op = "open blob"
	key, err := s.key(d)
	if err != nil {
		return nil, wrap(op, err)
	}
	if offset < 0 {
		return nil, wrap(op, sandbox.Errorf("", sandbox.Invalid, "the offset is %d", offset))
	}
	r := &reader{ctx: ctx, s: s, digest: d, key: key, at: offset}
	if offset == 0 {
		r.sum = sha256.New()
	}
	if err := r.get(); err != nil {
		return nil, wrap(op, err)
	}
	return r, nil
}

// reader reads one object from a place on.
type reader struct {
	ctx    context.Context
	s      *Store
	digest blob.Digest
	key    *string
	at     int64     // of the next byte
	size   int64     // of the whole
	sum    hash.Hash // nil unless it began at 0
	broken int       // how often the body broke off

	body io.ReadCloser
	err  error // that ends all reading
}

// get asks for the object from r.at on.
func (r *reader) get() error {
	in := &s3.GetObjectInput{Bucket: &r.s.bucket, Key: r.key}
	if r.at > 0 {
		in.Range = aws.String(fmt.Sprintf("bytes=%d-", r.at))
	}
	out, err := r.s.client.GetObject(r.ctx, in)
	if isRange(err) {
		return r.atEnd()
	}
	if err != nil {
		return absent(r.digest, err)
	}
	r.body, r.size = out.Body, r.at+aws.ToInt64(out.ContentLength)
	return nil
}

// atEnd settles a request for nothing: the end itself may be asked for.
func (r *reader) atEnd() error {
	info, err := r.s.stat(r.ctx, r.digest)
	if err != nil {
		return err
	}
	if r.at > info.Size {
		return sandbox.Errorf("", sandbox.Invalid, "offset %d is not 0 to %d, the size of %s", r.at, info.Size, r.digest)
	}
	r.size, r.err = info.Size, io.EOF
	return nil
}

func (r *reader) Read(p []byte) (int, error) {
	for {
		if r.err != nil {
			return 0, r.err
		}
		if err := r.ctx.Err(); err != nil {
			return 0, wrap("read blob", err)
		}
		n, err := r.body.Read(p)
		r.at += int64(n)
		if r.sum != nil {
			r.sum.Write(p[:n]) // never fails
		}
		if err != nil {
			r.err = r.settle(err)
		}
		if n > 0 || r.err != nil {
			return n, r.err
		}
	}
}

// settle says what the end of a body means: the blob's end, or nothing, once the
// rest has been asked for.
func (r *reader) settle(err error) error {
	if errors.Is(err, io.EOF) && r.at >= r.size {
		return r.verify()
	}
	if r.ctx.Err() != nil {
		return wrap("read blob", context.Cause(r.ctx))
	}
	if r.broken++; r.broken >= r.s.attempts {
		return &sandbox.Error{Op: "read blob", Kind: sandbox.Unavailable, Err: fmt.Errorf("%s broke off %d times: %w", r.digest, r.broken, err),
			Hint: "the connection to the bucket is bad: try again"}
	}
	err = r.body.Close()
	if gerr := r.get(); gerr != nil {
		return wrap("read blob", errors.Join(gerr, err))
	}
	return r.err
}

func (r *reader) verify() error {
	if r.sum == nil {
		return io.EOF
	}
	if got := blob.DigestOf([32]byte(r.sum.Sum(nil))); got != r.digest {
		return sandbox.Errorf("read blob", sandbox.Internal, "the bytes of %s are damaged: they are of %s", r.digest, got)
	}
	return io.EOF
}

func (r *reader) Close() error {
	if r.body == nil {
		return nil
	}
	return r.body.Close()
}
