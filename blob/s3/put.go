package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// partsAtOnce is how many parts of one upload are under way at a time.
const partsAtOnce = 4

// maxParts is the protocol's own bound on the parts of one object.
const maxParts = 10_000

// Put implements blob.Store. The name must be known before the first byte goes
// up: what is longer than a part waits in a file without a name until it has been
// read. Equal bytes that are there already are replaced, which heals damage.
func (s *Store) Put(ctx context.Context, r io.Reader) (blob.Info, error) {
	const op = "put blob"
	if err := ctx.Err(); err != nil {
		return blob.Info{}, wrap(op, err)
	}
	in := untilDone{ctx, r}
	head := new(bytes.Buffer)
	if _, err := io.CopyN(head, in, s.partSize+1); err == nil {
		info, err := s.putLong(ctx, head, in)
		return info, wrap(op, err)
	} else if !errors.Is(err, io.EOF) {
		return blob.Info{}, wrap(op, err)
	}
	d := blob.DigestOf(sha256.Sum256(head.Bytes()))
	key, err := s.key(d)
	if err != nil {
		return blob.Info{}, wrap(op, err)
	}
	_, err = s.client.PutObject(ctx, &s3.PutObjectInput{Bucket: &s.bucket, Key: key, Body: bytes.NewReader(head.Bytes())})
	if err != nil {
		return blob.Info{}, wrap(op, err)
	}
	info, err := s.stored(ctx, d, int64(head.Len()))
	return info, wrap(op, err)
}

// stored describes what has just been put, and makes sure that it is there.
func (s *Store) stored(ctx context.Context, d blob.Digest, size int64) (blob.Info, error) {
	info, err := s.stat(ctx, d)
	if err == nil && info.Size != size {
		err = sandbox.Errorf("", sandbox.Internal, "%s was stored with %d bytes instead of %d", d, info.Size, size)
	}
	return info, err
}

// putLong stores what begins with head and goes on with r.
func (s *Store) putLong(ctx context.Context, head *bytes.Buffer, r io.Reader) (info blob.Info, err error) {
	f, err := os.CreateTemp(s.spool, "berth-upload-*")
	if err != nil {
		return blob.Info{}, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := os.Remove(f.Name()); err != nil {
		return blob.Info{}, err
	}
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, sum), io.MultiReader(head, r))
	if err != nil {
		return blob.Info{}, err
	}
	d := blob.DigestOf([32]byte(sum.Sum(nil)))
	if err := s.upload(ctx, d, f, size); err != nil {
		return blob.Info{}, err
	}
	return s.stored(ctx, d, size)
}

// upload sends a file up in parts. One that fails is called off, so that the
// parts which came cost nothing.
func (s *Store) upload(ctx context.Context, d blob.Digest, f io.ReaderAt, size int64) error {
	key, err := s.key(d)
	if err != nil {
		return err
	}
	begun, err := s.client.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{Bucket: &s.bucket, Key: key})
	if err != nil {
		return err
	}
	parts, err := s.uploadParts(ctx, key, begun.UploadId, f, size)
	if err == nil {
		_, err = s.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
			Bucket: &s.bucket, Key: key, UploadId: begun.UploadId, MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}})
	}
	if err == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTime)
	defer cancel()
	_, aerr := s.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &s.bucket, Key: key, UploadId: begun.UploadId})
	if aerr != nil {
		return fmt.Errorf("%w (and its calling off: %w)", err, aerr)
	}
	return err
}

func (s *Store) uploadParts(ctx context.Context, key, id *string, f io.ReaderAt, size int64) ([]types.CompletedPart, error) {
	length := max(s.partSize, (size+maxParts-1)/maxParts)
	parts := make([]types.CompletedPart, (size+length-1)/length)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(partsAtOnce)
	for i := range parts {
		group.Go(func() error {
			number, offset := aws.Int32(int32(i+1)), int64(i)*length
			out, err := s.client.UploadPart(ctx, &s3.UploadPartInput{Bucket: &s.bucket, Key: key, UploadId: id, PartNumber: number,
				Body: io.NewSectionReader(f, offset, min(length, size-offset))})
			if err != nil {
				return err
			}
			parts[i] = types.CompletedPart{ETag: out.ETag, PartNumber: number}
			return nil
		})
	}
	return parts, group.Wait()
}

// untilDone ends a copy between two reads once its context has ended.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}
