// Package disk keeps blobs as files on this machine.
//
// A blob lies at sha256/<first 2 hex digits>/<64 hex digits>. It is written
// under tmp/, synced, and renamed into place, so that a name never stands for
// less than the whole blob. What a crash leaves under tmp/ goes at Open.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Store is a blob.Store in one directory.
type Store struct {
	blobs string // sha256/
	temps string // tmp/
}

var _ blob.Store = (*Store)(nil)

// Open opens the store in dir, which it makes (mode 0700, with its parents)
// when absent, and removes what dead writers left.
func Open(dir string) (*Store, error) {
	const op = "open blobs"
	s := &Store{blobs: filepath.Join(dir, "sha256"), temps: filepath.Join(dir, "tmp")}
	if err := s.makeDirs(dir); err != nil {
		return nil, wrap(op, err)
	}
	if err := s.removeStale(); err != nil {
		return nil, wrap(op, err)
	}
	return s, nil
}

// makeDirs makes all folders at once, so that a Put need not sync any but the
// one its blob goes into.
func (s *Store) makeDirs(dir string) error {
	if err := errors.Join(os.MkdirAll(s.blobs, 0o700), os.MkdirAll(s.temps, 0o700)); err != nil {
		return err
	}
	for i := range 256 {
		err := os.Mkdir(filepath.Join(s.blobs, fmt.Sprintf("%02x", i)), 0o700)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	return errors.Join(syncDir(s.blobs), syncDir(dir), syncDir(filepath.Dir(dir)))
}

// path returns where the blob lies; d is checked, as it becomes a file name.
func (s *Store) path(d blob.Digest) (string, error) {
	if _, err := blob.ParseDigest(string(d)); err != nil {
		return "", err
	}
	hex := d.Hex()
	return filepath.Join(s.blobs, hex[:2], hex), nil
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, d blob.Digest) (blob.Info, error) {
	const op = "stat blob"
	path, err := s.path(d)
	if err != nil {
		return blob.Info{}, wrap(op, err)
	}
	if err := ctx.Err(); err != nil {
		return blob.Info{}, wrap(op, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return blob.Info{}, wrap(op, absent(d, err))
	}
	return blob.Info{Digest: d, Size: info.Size(), Stored: info.ModTime()}, nil
}

// Open implements blob.Store. Reads fail once ctx has ended.
func (s *Store) Open(ctx context.Context, d blob.Digest, offset int64) (io.ReadCloser, error) {
	const op = "open blob"
	path, err := s.path(d)
	if err != nil {
		return nil, wrap(op, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, wrap(op, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, wrap(op, absent(d, err))
	}
	r, err := newReader(ctx, f, d, offset)
	if err != nil {
		return nil, wrap(op, errors.Join(err, f.Close()))
	}
	return r, nil
}

// Remove implements blob.Store.
func (s *Store) Remove(ctx context.Context, d blob.Digest) error {
	const op = "remove blob"
	path, err := s.path(d)
	if err != nil {
		return wrap(op, err)
	}
	if err := ctx.Err(); err != nil {
		return wrap(op, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return wrap(op, err)
	}
	return wrap(op, syncDir(filepath.Dir(path)))
}

// List implements blob.Store.
func (s *Store) List(ctx context.Context, f func(blob.Info) error) error {
	const op = "list blobs"
	for i := range 256 {
		if err := ctx.Err(); err != nil {
			return wrap(op, err)
		}
		names, err := os.ReadDir(filepath.Join(s.blobs, fmt.Sprintf("%02x", i)))
		if err != nil {
			return wrap(op, err)
		}
		for _, entry := range names {
			d, err := blob.ParseDigest("sha256:" + entry.Name())
			if err != nil {
				continue // not ours
			}
			info, err := s.Stat(ctx, d)
			if sandbox.KindOf(err) == sandbox.NotFound {
				continue // removed meanwhile
			}
			if err != nil {
				return wrap(op, err)
			}
			if err := f(info); err != nil {
				return err
			}
		}
	}
	return nil
}

// wrap puts op before err and gives it a kind.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	e := &sandbox.Error{Op: op, Kind: sandbox.KindOf(err), Err: err}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		e.Kind, e.Hint = sandbox.Exhausted, "free space on the disk that holds the data directory"
	}
	return e
}

// absent makes a missing file a missing blob.
func absent(d blob.Digest, err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return sandbox.Errorf("", sandbox.NotFound, "no blob %s", d)
	}
	return err
}

// syncDir makes the names in dir survive the loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
