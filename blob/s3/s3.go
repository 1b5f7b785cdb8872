// Package s3 keeps blobs as objects of a bucket that speaks S3.
//
// A blob lies at <prefix>sha256/<first 2 hex digits>/<64 hex digits>. An upload
// becomes an object whole or not at all, which the protocol itself promises, and
// what is stored under a name is always the same, so no write needs a condition
// but one: the prefix belongs to whom claimed it first.
package s3

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Config says which bucket, and how to come to it. Credentials come from the
// environment and the files that other programs of the kind read too, unless
// they are given.
type Config struct {
	Bucket   string
	Prefix   string // of every object: "" or a path without a slash at its beginning
	Endpoint string // URL of the service; "" means the one of the region
	Region   string // "" means what the environment says, or us-east-1

	// VirtualHost puts the bucket into the host's name, also with an endpoint of
	// one's own. Without an endpoint it is always there.
	VirtualHost bool

	Credentials aws.CredentialsProvider // nil means the environment's
	Attempts    int                     // of each request; 0 means 6
	Backoff     time.Duration           // the longest pause between two; 0 means 5 s
	Stall       time.Duration           // a connection on which nothing moves for so long is cut; 0 means 1 min
	PartSize    int64                   // bytes; what is longer goes up in parts of that size; 0 means 16 MiB, at least 5 MiB
	Spool       string                  // folder for uploads that are longer than a part; "" means the system's
}

// Store is a blob.Store in one bucket.
type Store struct {
	client   *s3.Client
	bucket   string
	prefix   string // "" or ends with a slash
	attempts int
	partSize int64
	spool    string
}

var _ blob.Store = (*Store)(nil)

// Bounds on what a caller may configure.
const (
	defaultAttempts = 6
	defaultPart     = 16 << 20
	leastPart       = 5 << 20 // the protocol's own
)

// Open returns the store in a bucket, which must be there and let itself be
// listed.
func Open(ctx context.Context, c Config) (*Store, error) {
	const op = "open bucket"
	if err := c.complete(); err != nil {
		return nil, err
	}
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(newClient(c.Stall)),
		config.WithRetryer(func() aws.Retryer { return newRetryer(c) }),
		// Sums beyond the signed one are a thing that many servers do not know.
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
	}
	if c.Region != "" {
		options = append(options, config.WithRegion(c.Region))
	}
	if c.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(c.Credentials))
	}
	conf, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, wrap(op, err)
	}
	if conf.Region == "" {
		conf.Region = "us-east-1"
	}
	client := s3.NewFromConfig(conf, func(o *s3.Options) {
		if c.Endpoint != "" {
			o.BaseEndpoint = aws.String(c.Endpoint)
			o.UsePathStyle = !c.VirtualHost
		}
		o.DisableLogOutputChecksumValidationSkipped = true
	})
	s := &Store{client: client, bucket: c.Bucket, prefix: c.Prefix, attempts: c.Attempts, partSize: c.PartSize, spool: c.Spool}
	_, err = client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: aws.String(s.prefix + "sha256/"), MaxKeys: aws.Int32(1)})
	if err != nil {
		return nil, wrap(op+" "+c.Bucket, err)
	}
	return s, nil
}

// complete fills in the defaults and checks the rest.
func (c *Config) complete() error {
	if c.Attempts == 0 {
		c.Attempts = defaultAttempts
	}
	if c.Backoff == 0 {
		c.Backoff = 5 * time.Second
	}
	if c.Stall == 0 {
		c.Stall = time.Minute
	}
	if c.PartSize == 0 {
		c.PartSize = defaultPart
	}
	if c.Prefix = strings.Trim(c.Prefix, "/"); c.Prefix != "" {
		c.Prefix += "/"
	}
	if c.Bucket == "" || c.Attempts < 1 || c.Backoff < 0 || c.Stall < 0 || c.PartSize < leastPart {
		return &sandbox.Error{Op: "check bucket", Kind: sandbox.Invalid,
			Err:  fmt.Errorf("bucket is %q, attempts %d, part size %d", c.Bucket, c.Attempts, c.PartSize),
			Hint: "give it as s3://bucket/prefix?endpoint=https://host&region=name"}
	}
	return nil
}

// newRetryer retries what may work the next time, with growing pauses, but not
// for ever.
func newRetryer(c Config) aws.Retryer {
	return retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = c.Attempts
		o.MaxBackoff = c.Backoff
		o.Backoff = retry.NewExponentialJitterBackoff(c.Backoff)
		o.RateLimiter = ratelimit.None
	})
}

// key is the object of a digest, which is checked.
func (s *Store) key(d blob.Digest) (*string, error) {
	if _, err := blob.ParseDigest(string(d)); err != nil {
		return nil, err
	}
	hex := d.Hex()
	return aws.String(s.prefix + "sha256/" + hex[:2] + "/" + hex), nil
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, d blob.Digest) (blob.Info, error) {
	info, err := s.stat(ctx, d)
	return info, wrap("stat blob", err)
}

func (s *Store) stat(ctx context.Context, d blob.Digest) (blob.Info, error) {
	key, err := s.key(d)
	if err != nil {
		return blob.Info{}, err
	}
	out, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: key})
	if err != nil {
		return blob.Info{}, absent(d, err)
	}
	return blob.Info{Digest: d, Size: aws.ToInt64(out.ContentLength), Stored: aws.ToTime(out.LastModified)}, nil
}

// Remove implements blob.Store.
func (s *Store) Remove(ctx context.Context, d blob.Digest) error {
	const op = "remove blob"
	key, err := s.key(d)
	if err != nil {
		return wrap(op, err)
	}
	_, err = s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.bucket, Key: key})
	if err = absent(d, err); sandbox.KindOf(err) == sandbox.NotFound {
		return nil // some servers say so
	}
	return wrap(op, err)
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, f func(blob.Info) error) error {
	const op = "list blobs"
	all := s.prefix + "sha256/"
	pages := s3.NewListObjectsV2Paginator(s.client, &s3.ListObjectsV2Input{Bucket: &s.bucket, Prefix: &all})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return wrap(op, err)
		}
		for _, o := range page.Contents {
			name := strings.TrimPrefix(aws.ToString(o.Key), all)
			d, err := blob.ParseDigest("sha256:" + name[strings.LastIndexByte(name, '/')+1:])
			if err != nil {
				continue // not ours
			}
			if err := f(blob.Info{Digest: d, Size: aws.ToInt64(o.Size), Stored: aws.ToTime(o.LastModified)}); err != nil {
				return err
			}
		}
	}
	return nil
}

// absent makes a missing object a missing blob.
func absent(d blob.Digest, err error) error {
	if isMissing(err) {
		return &sandbox.Error{Kind: sandbox.NotFound, Err: errors.New("no blob " + string(d))}
	}
	return err
}
