package image

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/berth-dev/berth/sandbox"
)

const (
	maxLayers   = 512
	maxDocument = 8 << 20   // bytes of a manifest, an index or a configuration
	maxWindow   = 128 << 20 // bytes of memory that a layer's compression may ask for
)

// layered is a root made of an OCI image's layers.
type layered struct {
	config *v1.ConfigFile
	id     string // digest of the configuration, which names every layer's content
	layers []layer
	caps   caps
	close  func() error
}

// layer is one archive of the image, compressed or not.
type layer struct {
	open func() (io.ReadCloser, error)
	size int64 // bytes as stored; 0 means unknown
}

// newLayered checks an image's configuration against its layers.
func newLayered(raw []byte, layers []layer, c caps, closer func() error) (*layered, error) {
	config, err := v1.ParseConfigFile(bytes.NewReader(raw))
	if err != nil {
		return nil, notImage("its configuration cannot be read: %w", err)
	}
	if len(layers) == 0 || len(layers) > maxLayers {
		return nil, notImage("it has %d layers", len(layers))
	}
	if len(config.RootFS.DiffIDs) != len(layers) {
		return nil, notImage("its configuration names %d layers, its manifest %d", len(config.RootFS.DiffIDs), len(layers))
	}
	if config.OS != "" && config.OS != "linux" || config.Architecture != "" && config.Architecture != runtime.GOARCH {
		return nil, wrongPlatform(config.OS + "/" + config.Architecture)
	}
	return &layered{config: config, id: fmt.Sprintf("%x", sha256.Sum256(raw)), layers: layers, caps: c, close: closer}, nil
}

func notImage(format string, args ...any) error {
	return invalid("give an OCI or Docker image of a Linux root file system", "not an image: "+format, args...)
}

func wrongPlatform(has string) error {
	return &sandbox.Error{Kind: sandbox.Unsupported, Err: fmt.Errorf("the image is for %s, this machine is linux/%s", has, runtime.GOARCH),
		Hint: "choose an image that is built for linux/" + runtime.GOARCH}
}

func (l *layered) key() string { return keyOf("layers", l.id) }

func (l *layered) Close() error { return l.close() }

func (l *layered) fill(ctx context.Context, w *work, say func(sandbox.Progress)) (config, error) {
	c, err := readConfig(l.config.Config)
	if err != nil {
		return config{}, err
	}
	t, err := openTree(w.root())
	if err != nil {
		return config{}, err
	}
	err = l.unpack(ctx, t, say)
	return c, errors.Join(err, t.Close())
}

// unpack applies all layers to t.
func (l *layered) unpack(ctx context.Context, t *tree, say func(sandbox.Progress)) error {
	p := sandbox.Progress{Step: "unpack layers", Unit: "bytes"}
	for _, y := range l.layers {
		p.Total += y.size
	}
	said := int64(0)
	read := func(n int) {
		if p.Done += int64(n); p.Done-said >= 1<<20 || p.Done == p.Total {
			said = p.Done
			say(p)
		}
	}
	u := newUnpacker(t, l.caps)
	stream := l.caps.bytes
	for i, y := range l.layers {
		if err := applyLayer(ctx, u, y, l.config.RootFS.DiffIDs[i], &stream, read); err != nil {
			return fmt.Errorf("layer %d of %d: %w", i+1, len(l.layers), err)
		}
	}
	return u.finish()
}

// applyLayer unpacks one layer and checks that its content is want. left is how
// many bytes the uncompressed archives may still have.
func applyLayer(ctx context.Context, u *unpacker, y layer, want v1.Hash, left *int64, read func(int)) (err error) {
	stored, err := y.open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stored.Close()) }()
	plain, done, err := decompress(&counted{ctx: ctx, r: stored, read: read})
	if err != nil {
		return err
	}
	defer done()
	sum := sha256.New()
	archive := &budget{r: io.TeeReader(plain, sum), left: left}
	if err := u.apply(ctx, archive); err != nil {
		return damaged(err)
	}
	if _, err := io.Copy(io.Discard, archive); err != nil { // what follows the archive's end counts too
		return damaged(err)
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)); want.Algorithm != "sha256" || got != want.Hex {
		return invalid("the image is damaged: fetch or save it again", "content is sha256:%s, the image says %s", got, want)
	}
	return nil
}

// decompress finds out by its first bytes how a layer is compressed.
func decompress(r io.Reader) (plain io.Reader, done func(), err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	magic, err := in.Peek(4)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, nil, damaged(err)
		}
		return z, func() {}, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, damaged(err)
		}
		return z, z.Close, nil
	}
	return in, func() {}, nil
}

// damaged makes what decompression reports the image's fault.
func damaged(err error) error {
	for _, e := range []error{gzip.ErrHeader, gzip.ErrChecksum, zstd.ErrMagicMismatch, zstd.ErrCRCMismatch, zstd.ErrReservedBlockType,
		zstd.ErrCompressedSizeTooBig, zstd.ErrBlockTooSmall, zstd.ErrWindowSizeExceeded, zstd.ErrDecoderSizeExceeded,
		zstd.ErrUnexpectedBlockSize, io.ErrUnexpectedEOF} {
		if errors.Is(err, e) {
			return invalid("the image is damaged: fetch or save it again", "read layer: %w", err)
		}
	}
	if strings.Contains(err.Error(), "flate: corrupt input") {
		return invalid("the image is damaged: fetch or save it again", "read layer: %w", err)
	}
	return err
}

// counted tells of what is read, and ends when its context does.
type counted struct {
	ctx  context.Context
	r    io.Reader
	read func(int)
}

func (c *counted) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	if n > 0 {
		c.read(n)
	}
	return n, err
}

// budget refuses to read more than is left.
type budget struct {
	r    io.Reader
	left *int64
}

func (b *budget) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if *b.left -= int64(n); *b.left < 0 {
		return 0, errTooLarge()
	}
	return n, err
}

// readConfig takes over what an image says of its processes.
func readConfig(c v1.Config) (config, error) {
	out := config{env: map[string]string{}}
	size := 0
	for _, pair := range c.Env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" || strings.ContainsAny(pair, "\x00") {
			continue // no process could have it
		}
		if size += len(pair) + 1; size > sandbox.MaxEnvBytes {
			return config{}, invalid("the image is malformed or hostile", "its environment has more than %d bytes", sandbox.MaxEnvBytes)
		}
		out.env[name] = value
	}
	if c.WorkingDir != "" {
		if err := sandbox.CheckPath(c.WorkingDir); err != nil {
			return config{}, fmt.Errorf("working directory of the image: %w", err)
		}
		if slices.Contains(strings.Split(c.WorkingDir, "/"), "..") {
			return config{}, invalid("the image is malformed or hostile", "its working directory %.200q points upward", c.WorkingDir)
		}
		out.workdir = c.WorkingDir
	}
	out.user, _, _ = strings.Cut(c.User, ":") // the group is the account's own
	if len(out.user) > 256 || strings.ContainsAny(out.user, "\x00\n/") {
		return config{}, invalid("the image is malformed or hostile", "its user %.80q is no account", out.user)
	}
	return out, nil
}
