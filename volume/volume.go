// Package volume keeps folders that outlive sandboxes: each a file system of a size
// of its own in one file, so that what a sandbox writes cannot fill the disk beyond
// that.
package volume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/loopfs"
	"github.com/berth-dev/berth/sandbox"
)

// What a new volume belongs to, inside: the user of sandboxes.
const ownerID = 1000

// The ends of the names of volumes, whole and half made.
const (
	suffix    = ".ext4"
	newSuffix = suffix + ".new"
)

// Store keeps volumes beneath one folder. Its methods may be called at once.
//
//	ID.ext4   the file system
//	ID/       where it is mounted, from its first use on until Close
type Store struct {
	dir    string
	mu     sync.Mutex // held to make, mount and remove
	closed bool
}

// Open returns the store of a folder, which it makes. It mounts nothing.
func Open(dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fault("open volumes", "", err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault("open volumes", "", err)
	}
	return &Store{dir: dir}, nil
}

func (s *Store) file(id sandbox.ID) string   { return filepath.Join(s.dir, string(id)+suffix) }
func (s *Store) folder(id sandbox.ID) string { return filepath.Join(s.dir, string(id)) }

// Close unmounts every volume, those that an earlier process left mounted too. One that
// somebody on this host looks at stays mounted. Sandboxes keep the volumes that they have.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return fault("close volumes", "", err)
	}
	var errs []error
	for _, e := range entries {
		id, err := sandbox.ParseID(e.Name())
		if err != nil {
			continue
		}
		if err := loopfs.Unmount(s.folder(id)); err != nil && !errors.Is(err, loopfs.ErrInUse) {
			errs = append(errs, fault("unmount volume", id, err))
		}
	}
	return errors.Join(errs...)
}

// Make makes a volume of size bytes, whole or not at all. It takes its room from the
// disk as it is written.
//
// Conflict: it is there. Unsupported: this host has no means to. Exhausted: its disk is full.
func (s *Store) Make(ctx context.Context, id sandbox.ID, size int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.make(ctx, id, size)
	if errors.Is(err, unix.ENOSPC) {
		err = &sandbox.Error{Kind: sandbox.Exhausted, Err: err, Hint: "free space on the disk that holds the data directory"}
	}
	return fault("make volume", id, err)
}

func (s *Store) make(ctx context.Context, id sandbox.ID, size int64) error {
	if _, err := os.Lstat(s.file(id)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, sandbox.Errorf("", sandbox.Conflict, "it is there already"))
	}
	half := filepath.Join(s.dir, string(id)+newSuffix)
	f, err := os.OpenFile(half, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer os.Remove(half) // it has its other name if all went well
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	if err := format(ctx, half); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(half, s.file(id)); err != nil {
		return err
	}
	if err := s.mount(id); err != nil {
		return errors.Join(err, s.remove(id))
	}
	err = os.Remove(filepath.Join(s.folder(id), "lost+found")) // that of ext4 itself
	return errors.Join(err, syncFolder(s.dir))
}

// format puts an empty file system into a file. ENOSPC: the disk has no room for it.
func format(ctx context.Context, file string) error {
	owner := strconv.Itoa(ownerID) + ":" + strconv.Itoa(ownerID)
	cmd := exec.CommandContext(ctx, "mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,root_owner="+owner, file)
	cmd.Env = append(os.Environ(), "LC_ALL=C") // its words are looked at below
	out, err := cmd.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return &sandbox.Error{Kind: sandbox.Unsupported, Err: err, Hint: "install e2fsprogs"}
	}
	if err == nil {
		return nil
	}
	// It ends with the same status whatever went wrong.
	if bytes.Contains(bytes.ToLower(out), []byte(unix.ENOSPC.Error())) {
		return fmt.Errorf("mkfs.ext4: %w", unix.ENOSPC)
	}
	return fmt.Errorf("mkfs.ext4: %w: %.300s", err, out)
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// mount mounts a volume if it is not.
func (s *Store) mount(id sandbox.ID) error {
	if s.closed {
		return sandbox.Errorf("", sandbox.Unavailable, "the server is shutting down")
	}
	if _, err := os.Lstat(s.file(id)); err != nil {
		return err
	}
	if err := os.Mkdir(s.folder(id), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	mounted, err := loopfs.Mounted(s.folder(id))
	if err != nil || mounted {
		return err
	}
	if err := loopfs.Mount(s.file(id), s.folder(id), "ext4"); err != nil {
		return &sandbox.Error{Kind: sandbox.Unsupported, Err: err, Hint: "the kernel needs ext4 and loop devices: modprobe ext4 loop"}
	}
	return nil
}

// Folder is where a volume's files lie on this host, for the engine to mount: mounted
// when it returns. NotFound: no such volume.
func (s *Store) Folder(_ context.Context, id sandbox.ID) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.folder(id), fault("mount volume", id, s.mount(id))
}

// Stored is how many bytes of the host's disk a volume occupies. NotFound: there is
// no such volume.
func (s *Store) Stored(_ context.Context, id sandbox.ID) (int64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(s.file(id), &st); err != nil {
		return 0, fault("measure volume", id, err)
	}
	return st.Blocks * 512, nil
}

// Remove removes a volume with all that it holds. One that is not there is no error;
// one in use is Conflict.
func (s *Store) Remove(_ context.Context, id sandbox.ID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fault("remove volume", id, s.remove(id))
}

func (s *Store) remove(id sandbox.ID) error {
	if err := loopfs.Unmount(s.folder(id)); errors.Is(err, loopfs.ErrInUse) {
		return &sandbox.Error{Kind: sandbox.Conflict, Err: err, Hint: "try again in a moment"}
	} else if err != nil {
		return err
	}
	for _, path := range []string{s.folder(id), s.file(id)} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Tidy removes halves that were never whole, and says which volumes there are. It is
// called before any other method.
func (s *Store) Tidy() (there map[sandbox.ID]bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fault("tidy volumes", "", err)
	}
	there = map[sandbox.ID]bool{}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), newSuffix) {
			if err := os.Remove(filepath.Join(s.dir, e.Name())); err != nil {
				return nil, fault("tidy volumes", "", err)
			}
			continue
		}
		name, ok := strings.CutSuffix(e.Name(), suffix)
		if id, err := sandbox.ParseID(name); ok && err == nil {
			there[id] = true
		}
	}
	return there, nil
}

// fault gives an error the verb and the volume that it is about, and a kind.
func fault(op string, id sandbox.ID, err error) error {
	if err == nil {
		return nil
	}
	e := &sandbox.Error{Op: op, ID: id, Err: err}
	if sandbox.KindOf(err) != sandbox.Internal {
		return e
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, fs.ErrNotExist):
		e.Kind = sandbox.NotFound
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTEMPTY):
		e.Kind = sandbox.Conflict
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		e.Kind, e.Hint = sandbox.Exhausted, "the volume is full: remove something, or make a larger one"
	case errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ENXIO):
		e.Kind = sandbox.Invalid
	}
	return e
}
