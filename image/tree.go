package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// maxDepth bounds how deep folders nest, however their paths are spelled.
const maxDepth = 256

// tree is a directory that becomes a root file system. Paths in it are those
// that a process would see with the tree as its root: symbolic links, absolute
// ones too, are followed by the kernel but never out of it. What a path's last
// element names is never followed.
type tree struct {
	root  *os.File
	depth map[uint64]int // by inode: how far a folder that was made here is below the root

	// The folder used last, as entries come folder by folder. What is removed
	// lies beneath it, so it cannot be removed itself.
	lastPath string
	last     *os.File
}

func openTree(dir string) (*tree, error) {
	root, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	return &tree{root: root, depth: map[uint64]int{}}, nil
}

func (t *tree) Close() error { return errors.Join(t.forget(), t.root.Close()) }

// forget lets go of the folder used last.
func (t *tree) forget() error {
	if t.last == nil {
		return nil
	}
	err := t.last.Close()
	t.last = nil
	return err
}

// cleanPath returns an archive's name for an entry as a relative path without
// "." and empty elements; "." is the root. Anything that points upward, is
// absolute, too long or holds a NUL is refused.
func cleanPath(name string) (string, error) {
	const hint = "the image is malformed or hostile: entries must be named relative to its root"
	switch {
	case strings.ContainsAny(name, "\x00"):
		return "", invalid(hint, "entry name %.200q holds a NUL byte", name)
	case strings.HasPrefix(name, "/"):
		return "", invalid(hint, "entry name %.200q is absolute", name)
	case len(name) >= unix.PathMax:
		return "", invalid(hint, "an entry name has %d bytes, at most %d are taken", len(name), unix.PathMax-1)
	}
	for element := range strings.SplitSeq(name, "/") {
		if element == ".." {
			return "", invalid(hint, "entry name %.200q points upward", name)
		}
		if len(element) > unix.NAME_MAX {
			return "", invalid(hint, "an element of entry name %.200q has %d bytes, at most %d are taken", name, len(element), unix.NAME_MAX)
		}
	}
	return path.Clean(name), nil
}

// open opens what p names beneath the tree, as openat2 does with RESOLVE_IN_ROOT.
func (t *tree) open(p string, flags int) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK),
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(int(t.root.Fd()), p, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), p), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			// EAGAIN: something on this machine was renamed meanwhile.
		default:
			return nil, &os.PathError{Op: "open", Path: p, Err: err}
		}
	}
}

// folder opens the folder at p, which with make set is made, with those above
// it, where missing (mode 0755). The caller does not close it, and uses it up
// before the next call.
func (t *tree) folder(p string, make bool) (*os.File, error) {
	if t.last != nil && t.lastPath == p {
		return t.last, nil
	}
	f, err := t.open(p, unix.O_DIRECTORY)
	if make && errors.Is(err, unix.ENOENT) {
		f, err = t.makeFolder(p)
	}
	if err != nil {
		return nil, unusable(err)
	}
	if err := t.forget(); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	t.last, t.lastPath = f, p
	return f, nil
}

// makeFolder makes p, whose parents may be missing too.
func (t *tree) makeFolder(p string) (*os.File, error) {
	parent, base := path.Split(p)
	above, err := t.open(path.Clean(parent), unix.O_DIRECTORY)
	if errors.Is(err, unix.ENOENT) && path.Clean(parent) != "." {
		above, err = t.makeFolder(path.Clean(parent))
	}
	if err != nil {
		return nil, err
	}
	defer above.Close()
	if err := t.mkdirAt(above, base); err != nil {
		return nil, err
	}
	return openFolderAt(above, base)
}

// mkdirAt makes one folder, unless that nests too deep.
func (t *tree) mkdirAt(parent *os.File, base string) error {
	above, err := inode(parent)
	if err != nil {
		return err
	}
	if t.depth[above] >= maxDepth {
		return invalid("the image is malformed or hostile", "folders nest deeper than %d at %.200q", maxDepth, base)
	}
	if err := unix.Mkdirat(int(parent.Fd()), base, 0o755); err != nil {
		return &os.PathError{Op: "mkdir", Path: base, Err: err}
	}
	f, err := openFolderAt(parent, base)
	if err != nil {
		return err
	}
	ino, err := inode(f)
	if err == nil {
		t.depth[ino] = t.depth[above] + 1
		err = f.Chmod(0o755) // whatever the umask
	}
	return errors.Join(err, f.Close())
}

// unusable makes the kernel's refusals to follow a path the image's fault.
func unusable(err error) error {
	for _, e := range []error{unix.ENOTDIR, unix.ELOOP, unix.EEXIST, unix.ENAMETOOLONG, unix.EXDEV} {
		if errors.Is(err, e) {
			return invalid("the image is malformed or hostile: a path leads through something that is no folder", "%w", err)
		}
	}
	return err
}

// openFolderAt opens the folder that base is itself; a link to one is refused.
func openFolderAt(parent *os.File, base string) (*os.File, error) {
	fd, err := unix.Openat(int(parent.Fd()), base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: base, Err: err}
	}
	return os.NewFile(uintptr(fd), base), nil
}

// typeAt returns the file type (S_IFMT) of base itself; ok is false without one.
func typeAt(parent *os.File, base string) (kind uint32, ok bool, err error) {
	var st unix.Stat_t
	err = unix.Fstatat(int(parent.Fd()), base, &st, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, &os.PathError{Op: "stat", Path: base, Err: err}
	}
	return st.Mode & unix.S_IFMT, true, nil
}

func inode(f *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("stat %s: %w", f.Name(), err)
	}
	return st.Ino, nil
}

// removeAt removes base and all beneath it, except what keep claims and the
// folders that lead there; keep may be nil.
func removeAt(parent *os.File, base string, keep func(uint64, string) bool) error {
	kind, ok, err := typeAt(parent, base)
	if err != nil || !ok {
		return err
	}
	kept := false
	if keep != nil {
		ino, err := inode(parent)
		if err != nil {
			return err
		}
		kept = keep(ino, base)
	}
	flags := 0
	if kind == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
		if err := clearFolder(parent, base, keep); err != nil {
			return err
		}
	}
	if kept {
		return nil
	}
	err = unix.Unlinkat(int(parent.Fd()), base, flags)
	if errors.Is(err, unix.ENOTEMPTY) && keep != nil {
		return nil // something beneath it is kept
	}
	if err != nil {
		return &os.PathError{Op: "remove", Path: base, Err: err}
	}
	return nil
}

// clearFolder removes what is in the folder base. Nesting is bounded by
// maxDepth, and so is the number of folders open at once.
func clearFolder(parent *os.File, base string, keep func(uint64, string) bool) error {
	f, err := openFolderAt(parent, base)
	if err != nil {
		return err
	}
	names, err := f.Readdirnames(-1)
	for _, name := range names {
		if err != nil {
			break
		}
		err = removeAt(f, name, keep)
	}
	return errors.Join(err, f.Close())
}

// makeWay removes what is at base unless it is a folder and so is the newcomer.
func makeWay(parent *os.File, base string, forFolder bool) (exists bool, err error) {
	kind, ok, err := typeAt(parent, base)
	if err != nil || !ok {
		return false, err
	}
	if kind == unix.S_IFDIR && forFolder {
		return true, nil
	}
	if kind == unix.S_IFDIR {
		return false, removeAt(parent, base, nil)
	}
	return false, unlinkAt(parent, base)
}

func unlinkAt(parent *os.File, base string) error {
	if err := unix.Unlinkat(int(parent.Fd()), base, 0); err != nil {
		return &os.PathError{Op: "remove", Path: base, Err: err}
	}
	return nil
}

// create makes the file base, which must not exist, and fills it.
func createAt(parent *os.File, base string, fill func(io.Writer) error) (*os.File, error) {
	fd, err := unix.Openat(int(parent.Fd()), base, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "create", Path: base, Err: err}
	}
	f := os.NewFile(uintptr(fd), base)
	if err := fill(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
