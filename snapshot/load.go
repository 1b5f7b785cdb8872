package snapshot

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Load makes dir, which must not be there, with all files of a manifest, in its
// order. Until Load has returned nil there is no dir, only a folder of that name
// with ".part" behind it, which Load removes when it fails or finds one. What
// has been loaded is not synced: it can be loaded again.
//
// A chunk that is missing or damaged is Internal; the error names the file and
// the chunk's place in it.
func (s *Store) Load(ctx context.Context, d blob.Digest, dir string) error {
	m, err := s.manifest(ctx, d)
	if err == nil {
		err = s.loadAll(ctx, m, dir, &loading{store: s})
	}
	return wrap("load "+string(d), err)
}

// loadAll does what l says for all files of a manifest.
func (s *Store) loadAll(ctx context.Context, m *Manifest, dir string, l *loading) (err error) {
	part := filepath.Clean(dir) + ".part"
	if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
		return sandbox.Errorf("", sandbox.Conflict, "%s is there already", dir)
	}
	if err := errors.Join(os.RemoveAll(part), os.Mkdir(part, 0o700)); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(part))
		}
	}()
	root, err := os.OpenRoot(part)
	if err != nil {
		return err
	}
	defer root.Close()
	group, gctx := errgroup.WithContext(ctx)
	group.SetLimit(s.loads)
	l.group, l.root = group, root
	for i := range m.Files {
		if err = l.file(gctx, &m.Files[i]); err != nil {
			break
		}
	}
	if gerr := group.Wait(); gerr != nil {
		err = gerr
	}
	if err != nil {
		return err
	}
	return os.Rename(part, dir)
}

// loading is one load under way.
type loading struct {
	store *Store
	near  *near  // nil: nothing is
	late  string // file that is made and left empty; "": none
	group *errgroup.Group
	root  *os.Root
}

// file makes one file and hands its chunks to the group.
func (l *loading) file(ctx context.Context, f *File) error {
	if err := l.root.MkdirAll(path.Dir(f.Name), 0o700); err != nil {
		return err
	}
	out, err := l.root.OpenFile(f.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(out.Chmod(os.FileMode(f.Mode)), out.Truncate(f.Size)); err != nil {
		return errors.Join(err, out.Close())
	}
	if f.Name == l.late {
		return errors.Join(makeRoom(out, f), out.Close())
	}
	var chunks sync.WaitGroup
	for i := range f.Chunks {
		if err := ctx.Err(); err != nil {
			break // the group tells why
		}
		chunks.Add(1)
		l.group.Go(func() error {
			defer chunks.Done()
			return l.chunk(ctx, out, f, i)
		})
	}
	// Its last chunk may be long in coming, and the next file need not wait.
	l.group.Go(func() error { chunks.Wait(); return out.Close() })
	return context.Cause(ctx)
}

func (l *loading) chunk(ctx context.Context, out *os.File, f *File, i int) error {
	c := &f.Chunks[i]
	buf := l.store.buffer(c.Length)
	defer l.store.buffers.Put(buf)
	if err := l.store.chunkNear(ctx, l.near, c, *buf); err != nil {
		return chunkError(f, i, err)
	}
	_, err := out.WriteAt(*buf, c.Offset)
	return err
}

// chunkNear is chunk, which is not fetched if it lies near. n may be nil.
func (s *Store) chunkNear(ctx context.Context, n *near, c *Chunk, buf []byte) error {
	if n != nil && n.read(c, buf) {
		return nil
	}
	return s.chunk(ctx, c, buf)
}

// chunkError names a chunk that could not be had. One that is missing is damage,
// not a thing that the caller asked for in vain.
func chunkError(f *File, i int, err error) error {
	e := &sandbox.Error{Op: fmt.Sprintf("chunk %d of %s", i, f.Name), Err: err}
	if k := sandbox.KindOf(err); k == sandbox.NotFound || k == sandbox.Internal {
		e.Kind, e.Hint = sandbox.Internal, "what was stored is damaged or incomplete: it cannot be used; remove it, and check the store of blobs"
	}
	return e
}
