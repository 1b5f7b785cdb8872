package guest

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// tree is the file system that the host reaches. Names are absolute and clean.
type tree interface {
	open(name string, flag int, perm fs.FileMode) (*os.File, error)
	stat(name string) (fs.FileInfo, error)
	lstat(name string) (fs.FileInfo, error)
	readlink(name string) (string, error)
	mkdir(name string, perm fs.FileMode) error
	rename(from, to string) error
	remove(name string) error
	removeAll(name string) error
	chmod(name string, mode fs.FileMode) error
	chown(name string, uid, gid uint32) error // of the entry itself, not of what a link points to
	chtimes(name string, modified time.Time) error
	symlink(target, name string) error
	attributed(name string) bool        // a file or folder has extended attributes
	root(name string) (*os.Root, error) // a folder that nothing leaves
	real(name string) (string, error)   // the same place without links on the way
	watch(inotify int, name string, mask uint32) (int, error)
	close() error
}

// openTree is the whole file system, or what lies beneath scratch.
func openTree(scratch string) (tree, error) {
	if scratch == "" {
		return wholeTree{}, nil
	}
	root, err := os.OpenRoot(scratch)
	if err != nil {
		return nil, err
	}
	return scratchTree{root}, nil
}

// cleanPath checks an absolute path and makes it canonical.
func cleanPath(p string) (string, error) {
	switch {
	case p == "" || p[0] != '/':
		return "", refuse(invalid, "give the whole path, such as /workspace/file", "path %.200q is not absolute", p)
	case len(p) > maxPath:
		return "", refuse(invalid, "", "the path has %d bytes, at most %d are taken", len(p), maxPath)
	case strings.IndexByte(p, 0) >= 0:
		return "", refuse(invalid, "", "the path holds a NUL byte")
	}
	return path.Clean(p), nil
}

// maxPath bounds the bytes of a path.
const maxPath = 4096

// noWait opens pipes and devices without waiting for their other side.
const noWait = syscall.O_NONBLOCK | syscall.O_NOCTTY

// wholeTree is the sandbox's own file system. The sandbox is the boundary: a
// link may point anywhere in it.
type wholeTree struct{}

func (wholeTree) open(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag|noWait, perm)
}
func (wholeTree) stat(name string) (fs.FileInfo, error)  { return os.Stat(name) }
func (wholeTree) lstat(name string) (fs.FileInfo, error) { return os.Lstat(name) }
func (wholeTree) readlink(name string) (string, error)   { return os.Readlink(name) }
func (wholeTree) mkdir(name string, p fs.FileMode) error { return os.Mkdir(name, p) }
func (wholeTree) rename(from, to string) error           { return os.Rename(from, to) }
func (wholeTree) remove(name string) error               { return os.Remove(name) }
func (wholeTree) removeAll(name string) error            { return os.RemoveAll(name) }
func (wholeTree) chmod(name string, m fs.FileMode) error { return os.Chmod(name, m) }
func (wholeTree) chown(name string, uid, gid uint32) error {
	return os.Lchown(name, int(uid), int(gid))
}
func (wholeTree) chtimes(name string, at time.Time) error {
	return os.Chtimes(name, time.Time{}, at)
}
func (wholeTree) attributed(name string) bool {
	n, err := unix.Llistxattr(name, nil)
	return err == nil && n > 0
}
func (wholeTree) symlink(target, name string) error  { return os.Symlink(target, name) }
func (wholeTree) root(name string) (*os.Root, error) { return os.OpenRoot(name) }
func (wholeTree) real(name string) (string, error)   { return filepath.EvalSymlinks(name) }
func (wholeTree) watch(inotify int, name string, mask uint32) (int, error) {
	return unix.InotifyAddWatch(inotify, name, mask|unix.IN_DONT_FOLLOW)
}
func (wholeTree) close() error { return nil }

// scratchTree is a folder that no path leaves, by whatever link. All belongs to
// the current user.
type scratchTree struct{ dir *os.Root }

// beneath makes an absolute name relative to the folder.
func beneath(name string) string {
	if name = strings.TrimPrefix(name, "/"); name == "" {
		return "."
	}
	return name
}

func (t scratchTree) open(name string, flag int, perm fs.FileMode) (*os.File, error) {
	return t.dir.OpenFile(beneath(name), flag|noWait, perm)
}
func (t scratchTree) stat(name string) (fs.FileInfo, error)  { return t.dir.Stat(beneath(name)) }
func (t scratchTree) lstat(name string) (fs.FileInfo, error) { return t.dir.Lstat(beneath(name)) }
func (t scratchTree) readlink(name string) (string, error)   { return t.dir.Readlink(beneath(name)) }
func (t scratchTree) mkdir(name string, p fs.FileMode) error { return t.dir.Mkdir(beneath(name), p) }
func (t scratchTree) rename(from, to string) error {
	return t.dir.Rename(beneath(from), beneath(to))
}
func (t scratchTree) remove(name string) error               { return t.dir.Remove(beneath(name)) }
func (t scratchTree) removeAll(name string) error            { return t.dir.RemoveAll(beneath(name)) }
func (t scratchTree) chmod(name string, m fs.FileMode) error { return t.dir.Chmod(beneath(name), m) }
func (t scratchTree) chown(string, uint32, uint32) error     { return nil }
func (t scratchTree) chtimes(name string, at time.Time) error {
	return t.dir.Chtimes(beneath(name), time.Time{}, at)
}
func (t scratchTree) attributed(name string) bool {
	f, err := t.dir.OpenFile(beneath(name), noWait|unix.O_NOFOLLOW, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	n, err := unix.Flistxattr(int(f.Fd()), nil)
	return err == nil && n > 0
}
func (t scratchTree) symlink(target, name string) error  { return t.dir.Symlink(target, beneath(name)) }
func (t scratchTree) root(name string) (*os.Root, error) { return t.dir.OpenRoot(beneath(name)) }
func (t scratchTree) real(name string) (string, error)   { return name, nil }

// watch names the folder by a descriptor: a path might lead out of the folder.
func (t scratchTree) watch(inotify int, name string, mask uint32) (int, error) {
	f, err := t.dir.OpenFile(beneath(name), unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return unix.InotifyAddWatch(inotify, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), mask)
}

func (t scratchTree) close() error { return t.dir.Close() }
