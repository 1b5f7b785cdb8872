package engine

import (
	"archive/tar"
	"context"
	"encoding/json"
	"io"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

// Archive keeps what snapshots and backups hold, each named by the digest of its
// manifest. What no record of the engine's names is removed by Sweep.
type Archive interface {
	// Fresh makes an empty folder for Keep or Discard.
	Fresh() (dir string, err error)
	Discard(dir string) error

	// Keep saves a folder of Fresh's, which is the archive's from then on. Until
	// it is released nothing of it is swept.
	Keep(ctx context.Context, dir string, about json.RawMessage, bases ...blob.Digest) (*snapshot.Saved, error)

	// Take gives a folder as it was kept, for reading until release.
	Take(ctx context.Context, d blob.Digest) (dir string, release func(), err error)

	// TakeEarly is Take, but the file of that name may have gaps yet. Then w tells what
	// is there, and more comes for as long as the archive is open.
	TakeEarly(ctx context.Context, d blob.Digest, name string) (dir string, w *snapshot.Filling, release func(), err error)

	// Refill fills the parts of a file that it lacks, each an offset and a length, with
	// what that file of a kept folder has. run does so until it returns.
	Refill(ctx context.Context, d blob.Digest, name string, out io.WriterAt, lacks [][2]int64) (w *snapshot.Filling, run func(context.Context) error, err error)

	// Forget says that what lies ready for Take is not wanted any more.
	Forget(d blob.Digest) error

	SaveStream(ctx context.Context, name string, r io.Reader, most int64, about json.RawMessage, bases ...blob.Digest) (*snapshot.Saved, error)
	Stream(ctx context.Context, d blob.Digest, name string) (io.Reader, error)
	Verify(ctx context.Context, d blob.Digest) error

	Export(ctx context.Context, d blob.Digest, to io.Writer, first func(*tar.Writer) error) error
	Import(ctx context.Context, from io.Reader, first snapshot.First, accept snapshot.Accept) (*snapshot.Saved, *snapshot.Manifest, error)

	Sweep(ctx context.Context, live func(context.Context) ([]blob.Digest, error)) (snapshot.Swept, error)
	Unneeded(ctx context.Context, live func(context.Context) ([]blob.Digest, error)) (snapshot.Swept, error)
}

var _ Archive = (*snapshot.Shelf)(nil)

// Bounds on what is saved to the archive.
const (
	keepsAtOnce  = 4 // each has workers of its own
	keepsWaiting = 256
)

// archived returns the archive, or says that there is none.
func (e *Engine) archived() (Archive, error) {
	if e.archive == nil {
		return nil, &sandbox.Error{Op: "find archive", Kind: sandbox.Unsupported, Err: errNoArchive, Hint: "start the server with a place for blobs"}
	}
	return e.archive, nil
}

// fromArchive gives an archive's error the kind that it has for a caller: that the
// server may not use its own bucket is not about the caller's rights.
func fromArchive(err error) error {
	switch sandbox.KindOf(err) {
	case sandbox.Unauthorized, sandbox.Forbidden, sandbox.NotFound, sandbox.Conflict:
		return &sandbox.Error{Op: "use the archive", Kind: sandbox.Unavailable, Err: err}
	}
	return err
}
