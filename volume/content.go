package volume

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// Bounds on what one call gives.
const (
	maxEntries = 10_000
	maxDepth   = 64
)

// What a volume holds is written by sandboxes, and hostile: every path is resolved
// beneath its root, without leaving it by a link, and only what is a plain file is
// read.

// beneath calls f with the root of a volume and a path in it as os.Root takes it.
func (s *Store) beneath(ctx context.Context, op string, id sandbox.ID, p string, f func(r *os.Root, name string) error) error {
	if strings.ContainsRune(p, 0) || len(p) > sandbox.MaxPathBytes {
		return fault(op, id, sandbox.Errorf("check path", sandbox.Invalid, "%.80q is no path", p))
	}
	dir, err := s.Folder(ctx, id)
	if err != nil {
		return err
	}
	r, err := os.OpenRoot(dir)
	if err != nil {
		return fault(op, id, err)
	}
	defer r.Close()
	name := strings.TrimPrefix(path.Clean("/"+p), "/")
	if name == "" {
		name = "."
	}
	err = f(r, name)
	if err != nil && strings.Contains(err.Error(), "path escapes from parent") { // os has no name for it
		err = &sandbox.Error{Kind: sandbox.Invalid, Err: err, Hint: "a link leads out of the volume"}
	}
	return fault(op, id, err)
}

// Stat describes an entry; of a link, the link itself.
func (s *Store) Stat(ctx context.Context, id sandbox.ID, p string) (e sandbox.VolumeEntry, err error) {
	err = s.beneath(ctx, "stat", id, p, func(r *os.Root, name string) error {
		e, err = describe(r, name)
		return err
	})
	return e, err
}

// List lists a folder, depth levels of it, by path. More than 10,000 entries are
// Exhausted.
func (s *Store) List(ctx context.Context, id sandbox.ID, p string, depth int) (all []sandbox.VolumeEntry, err error) {
	if depth < 1 || depth > maxDepth {
		return nil, fault("list", id, sandbox.Errorf("check depth", sandbox.Invalid, "depth is %d, 1 to %d are taken", depth, maxDepth))
	}
	err = s.beneath(ctx, "list", id, p, func(r *os.Root, name string) error {
		return list(ctx, r, name, depth, &all)
	})
	return all, err
}

func list(ctx context.Context, r *os.Root, dir string, depth int, all *[]sandbox.VolumeEntry) error {
	f, err := r.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(maxEntries + 1)
	f.Close()
	if err != nil && err != io.EOF {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(*all) >= maxEntries {
			return &sandbox.Error{Kind: sandbox.Exhausted, Err: errors.New("there are too many entries"), Hint: "list a folder further down, or with a smaller depth"}
		}
		e, err := describe(r, path.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // somebody removed it
		}
		if err != nil {
			return err
		}
		*all = append(*all, e)
		if e.Type != sandbox.TypeDir || depth == 1 {
			continue
		}
		if err := list(ctx, r, path.Join(dir, name), depth-1, all); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func describe(r *os.Root, name string) (e sandbox.VolumeEntry, err error) {
	fi, err := r.Lstat(name)
	if err != nil {
		return e, err
	}
	st, err := statOf(fi)
	if err != nil {
		return e, err
	}
	e = sandbox.VolumeEntry{Name: fi.Name(), Path: path.Clean("/" + name), Type: sandbox.TypeOther, Size: fi.Size(), Mode: st.Mode & 0o7777, UID: st.Uid, GID: st.Gid,
		Accessed: time.Unix(st.Atim.Unix()).UTC(), Modified: fi.ModTime().UTC(), Changed: time.Unix(st.Ctim.Unix()).UTC()}
	if name == "." {
		e.Name = "/"
	}
	switch {
	case fi.Mode().IsRegular():
		e.Type = sandbox.TypeFile
	case fi.IsDir():
		e.Type = sandbox.TypeDir
	case fi.Mode()&fs.ModeSymlink != 0:
		e.Type = sandbox.TypeSymlink
		e.Target, err = r.Readlink(name)
	}
	return e, err
}

// MakeDir makes a folder. With parents those above it are made, and one that is
// there is no error.
func (s *Store) MakeDir(ctx context.Context, id sandbox.ID, p string, a sandbox.VolumeAttributes, parents bool) (e sandbox.VolumeEntry, err error) {
	err = s.beneath(ctx, "make folder", id, p, func(r *os.Root, name string) error {
		if parents {
			if err := makeWay(r, name); err != nil {
				return err
			}
		}
		err := r.Mkdir(name, 0o755)
		made := err == nil
		if err != nil && !(parents && errors.Is(err, fs.ErrExist)) {
			return err
		}
		if made {
			a = a.WithDefaults(ownerID, 0o755)
		}
		if err := set(r, name, a); err != nil {
			return err
		}
		e, err = describe(r, name)
		return err
	})
	return e, err
}

// makeWay makes the folders above a path, the user's own.
func makeWay(r *os.Root, name string) error {
	above := path.Dir(name)
	if above == "." {
		return nil
	}
	if fi, err := r.Stat(above); err == nil && fi.IsDir() {
		return nil
	}
	if err := makeWay(r, above); err != nil {
		return err
	}
	if err := r.Mkdir(above, 0o755); err != nil {
		return err
	}
	return r.Lchown(above, ownerID, ownerID)
}

// Set changes the attributes of an entry, not through a link.
func (s *Store) Set(ctx context.Context, id sandbox.ID, p string, a sandbox.VolumeAttributes) (e sandbox.VolumeEntry, err error) {
	err = s.beneath(ctx, "change", id, p, func(r *os.Root, name string) error {
		if err := set(r, name, a); err != nil {
			return err
		}
		e, err = describe(r, name)
		return err
	})
	return e, err
}

func set(r *os.Root, name string, a sandbox.VolumeAttributes) error {
	uid, gid := -1, -1
	if a.UID != nil {
		uid = int(*a.UID)
	}
	if a.GID != nil {
		gid = int(*a.GID)
	}
	if uid >= 0 || gid >= 0 {
		if err := r.Lchown(name, uid, gid); err != nil {
			return err
		}
	}
	if a.Mode == nil {
		return nil
	}
	if *a.Mode > 0o7777 {
		return sandbox.Errorf("check mode", sandbox.Invalid, "mode %o is out of range, 0 to 7777 are taken", *a.Mode)
	}
	if fi, err := r.Lstat(name); err != nil || fi.Mode()&fs.ModeSymlink != 0 {
		return err // a link has no mode of its own
	}
	return r.Chmod(name, modeOf(*a.Mode))
}

// modeOf is permission bits as package os has them.
func modeOf(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	for bit, mode := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if bits&bit != 0 {
			m |= mode
		}
	}
	return m
}

// Read opens a plain file.
func (s *Store) Read(ctx context.Context, id sandbox.ID, p string) (body io.ReadCloser, e sandbox.VolumeEntry, err error) {
	err = s.beneath(ctx, "read", id, p, func(r *os.Root, name string) error {
		f, err := r.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) // a pipe would wait for its other end
		if err != nil {
			return err
		}
		if err := plain(f); err != nil {
			return errors.Join(err, f.Close())
		}
		fi, err := f.Stat()
		if err != nil {
			return errors.Join(err, f.Close())
		}
		e = sandbox.VolumeEntry{Name: fi.Name(), Path: path.Clean("/" + name), Type: sandbox.TypeFile, Size: fi.Size(), Modified: fi.ModTime().UTC()}
		body = &bounded{Reader: io.LimitReader(f, fi.Size()), Closer: f}
		return nil
	})
	return body, e, err
}

// bounded reads what a file held when it was opened.
type bounded struct {
	io.Reader
	io.Closer
}

func plain(f *os.File) error {
	fi, err := f.Stat()
	switch {
	case err != nil:
		return err
	case fi.IsDir():
		return sandbox.Errorf("", sandbox.Invalid, "it is a folder")
	case !fi.Mode().IsRegular():
		return sandbox.Errorf("", sandbox.Invalid, "it is not a plain file")
	}
	return nil
}

// Write writes a file from body. One that is there is Conflict without replace, and
// otherwise gets the new bytes in place; replace also makes the folders above it.
func (s *Store) Write(ctx context.Context, id sandbox.ID, p string, a sandbox.VolumeAttributes, replace bool, body io.Reader) (e sandbox.VolumeEntry, err error) {
	err = s.beneath(ctx, "write", id, p, func(r *os.Root, name string) error {
		if replace {
			if err := makeWay(r, name); err != nil {
				return err
			}
		}
		f, err := r.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err == nil {
			a = a.WithDefaults(ownerID, 0o644)
		} else if errors.Is(err, fs.ErrExist) && replace {
			f, err = r.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0)
		}
		if err != nil {
			return err
		}
		if err := fill(f, body); err != nil {
			return err
		}
		if err := set(r, name, a); err != nil {
			return err
		}
		e, err = describe(r, name)
		return err
	})
	return e, err
}

func fill(f *os.File, body io.Reader) error {
	err := plain(f)
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = io.Copy(f, body)
	}
	return errors.Join(err, f.Close())
}

// RemoveEntry removes an entry with all beneath it. What is not there is NotFound.
func (s *Store) RemoveEntry(ctx context.Context, id sandbox.ID, p string) error {
	return s.beneath(ctx, "remove", id, p, func(r *os.Root, name string) error {
		if name == "." {
			return sandbox.Errorf("", sandbox.Invalid, "it is the volume itself")
		}
		if _, err := r.Lstat(name); err != nil {
			return err
		}
		return r.RemoveAll(name)
	})
}
