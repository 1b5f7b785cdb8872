package disk

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/blob"
)

// Put implements blob.Store. A blob that is there already is replaced by the
// equal bytes, which heals one whose file was damaged.
func (s *Store) Put(ctx context.Context, r io.Reader) (blob.Info, error) {
	const op = "put blob"
	if err := ctx.Err(); err != nil {
		return blob.Info{}, wrap(op, err)
	}
	f, err := s.newTemp()
	if err != nil {
		return blob.Info{}, wrap(op, err)
	}
	info, err := s.fill(ctx, f, r)
	if err != nil {
		return blob.Info{}, wrap(op, errors.Join(err, os.Remove(f.Name()), f.Close()))
	}
	if err := s.publish(f, info.Digest); err != nil {
		return blob.Info{}, wrap(op, errors.Join(err, f.Close()))
	}
	return info, wrap(op, f.Close())
}

// fill copies r into f, synced.
func (s *Store) fill(ctx context.Context, f *os.File, r io.Reader) (blob.Info, error) {
	sum := sha256.New()
	size, err := io.Copy(io.MultiWriter(f, sum), untilDone{ctx, r})
	if err != nil {
		return blob.Info{}, err
	}
	if err := errors.Join(f.Chmod(0o400), f.Sync()); err != nil {
		return blob.Info{}, err
	}
	stat, err := f.Stat()
	if err != nil {
		return blob.Info{}, err
	}
	return blob.Info{Digest: blob.DigestOf([32]byte(sum.Sum(nil))), Size: size, Stored: stat.ModTime()}, nil
}

// publish gives a finished temporary file its name.
func (s *Store) publish(f *os.File, d blob.Digest) error {
	path, err := s.path(d)
	if err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(filepath.Dir(path))
}

// newTemp makes a file under tmp/ that is locked while its writer lives.
func (s *Store) newTemp() (*os.File, error) {
	for {
		f, err := os.CreateTemp(s.temps, "put-*")
		if err != nil {
			return nil, err
		}
		locked, err := lockLinked(f)
		if err != nil {
			return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
		}
		if locked {
			return f, nil
		}
		// Another process opened the store between the two steps and took the
		// file for a dead writer's.
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// lockLinked locks f if no other holds it, and reports whether that worked and
// the file still has a name.
func lockLinked(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		return false, err
	}
	return stat.Nlink > 0, nil
}

// removeStale removes the temporary files whose writers are dead.
func (s *Store) removeStale() error {
	names, err := os.ReadDir(s.temps)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := removeUnlocked(filepath.Join(s.temps, name.Name())); err != nil {
			return err
		}
	}
	return nil
}

func removeUnlocked(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil // its writer has just finished
	}
	if err != nil {
		return err
	}
	stale, err := lockLinked(f)
	if stale {
		if err = os.Remove(path); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	return errors.Join(err, f.Close())
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
