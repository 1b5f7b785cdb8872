package image

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// caps bounds what an image may unpack to.
type caps struct {
	bytes   int64 // of files, and again of the layers' uncompressed archives
	entries int64 // of the layers' archives, and folders they imply
}

var defaultCaps = caps{bytes: 20 << 30, entries: 2_000_000}

// unpacker applies the layers of one image to a tree, the lowest first.
type unpacker struct {
	tree *tree
	left caps

	// added holds what the present layer has put into which folder: a whiteout
	// hides the layers below it only.
	added map[place]struct{}

	// times holds the folders' own times, set when nothing is put into them any
	// more.
	times map[string]time.Time
}

// place is a name in the folder with that inode.
type place struct {
	folder uint64
	name   string
}

func newUnpacker(t *tree, c caps) *unpacker {
	return &unpacker{tree: t, left: c, times: map[string]time.Time{}}
}

// The names that hide things of lower layers.
const (
	whiteout = ".wh."
	opaque   = ".wh..wh..opq"
)

// apply unpacks one layer's archive.
func (u *unpacker) apply(ctx context.Context, layer io.Reader) error {
	u.added = map[place]struct{}{}
	in := tar.NewReader(layer)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return broken(err)
		}
		if err := u.countEntry(); err != nil {
			return err
		}
		if err := u.entry(h, in); err != nil {
			return fmt.Errorf("entry %.300q: %w", h.Name, err)
		}
	}
}

// broken makes an archive's syntax the image's fault; what the system or the
// source reports stays what it is.
func broken(err error) error {
	if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, tar.ErrInsecurePath) {
		return invalid("the image is damaged: fetch or save it again", "read layer: %w", err)
	}
	return err
}

func (u *unpacker) countEntry() error {
	if u.left.entries--; u.left.entries < 0 {
		return &sandbox.Error{Kind: sandbox.Exhausted, Err: errors.New("the image has too many files"),
			Hint: fmt.Sprintf("an image may hold %d entries in all layers", defaultCaps.entries)}
	}
	return nil
}

func errTooLarge() error {
	return &sandbox.Error{Kind: sandbox.Exhausted, Err: errors.New("the image is too large"),
		Hint: fmt.Sprintf("an image may unpack to %d GB", defaultCaps.bytes>>30)}
}

// entry applies one entry of the layer.
func (u *unpacker) entry(h *tar.Header, body io.Reader) error {
	name, err := cleanPath(h.Name)
	if err != nil {
		return err
	}
	if err := checkOwner(h); err != nil {
		return err
	}
	if name == "." {
		if h.Typeflag != tar.TypeDir {
			return invalid("the image is malformed or hostile", "the root is no folder")
		}
		u.times[name] = h.ModTime
		return describe(u.tree.root, h)
	}
	dir, base := path.Split(name)
	parent, err := u.tree.folder(path.Clean(dir), true)
	if err != nil {
		return err
	}
	if hidden, ok := strings.CutPrefix(base, whiteout); ok {
		return u.hide(parent, base, hidden)
	}
	at, err := inode(parent)
	if err != nil {
		return err
	}
	u.added[place{at, base}] = struct{}{}
	switch h.Typeflag {
	case tar.TypeDir:
		u.times[name] = h.ModTime
		return u.makeFolder(parent, base, h)
	case tar.TypeReg, tar.TypeGNUSparse, tar.TypeCont:
		return u.makeFile(parent, base, h, body)
	case tar.TypeSymlink:
		return u.makeSymlink(parent, base, h)
	case tar.TypeLink:
		return u.makeLink(path.Clean(dir), base, h)
	}
	return nil // devices, pipes: a sandbox has its own /dev
}

// hide removes what lower layers have put at a name, or into a whole folder.
func (u *unpacker) hide(parent *os.File, base, hidden string) error {
	keep := func(folder uint64, name string) bool {
		_, is := u.added[place{folder, name}]
		return is
	}
	if base == opaque {
		names, err := readNames(parent)
		for _, name := range names {
			if err == nil {
				err = removeAt(parent, name, keep)
			}
		}
		return err
	}
	if hidden == "" || hidden == "." || hidden == ".." {
		return invalid("the image is malformed or hostile", "a whiteout names no file")
	}
	if strings.HasPrefix(hidden, whiteout) {
		return nil // another union file system's own bookkeeping
	}
	return removeAt(parent, hidden, keep)
}

// readNames reads a folder from its start, whatever was read of it before.
func readNames(folder *os.File) ([]string, error) {
	if _, err := folder.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return folder.Readdirnames(-1)
}

func (u *unpacker) makeFolder(parent *os.File, base string, h *tar.Header) error {
	exists, err := makeWay(parent, base, true)
	if err != nil {
		return err
	}
	if !exists {
		if err := u.tree.mkdirAt(parent, base); err != nil {
			return err
		}
	}
	f, err := openFolderAt(parent, base)
	if err != nil {
		return err
	}
	return errors.Join(describe(f, h), f.Close())
}

func (u *unpacker) makeFile(parent *os.File, base string, h *tar.Header, body io.Reader) error {
	if h.Size < 0 || h.Size > u.left.bytes {
		return errTooLarge()
	}
	u.left.bytes -= h.Size
	if _, err := makeWay(parent, base, false); err != nil {
		return err
	}
	f, err := createAt(parent, base, func(w io.Writer) error {
		n, err := io.Copy(w, body)
		if err == nil && n != h.Size {
			err = io.ErrUnexpectedEOF
		}
		return broken(err)
	})
	if err != nil {
		return err
	}
	return errors.Join(describe(f, h), setTime(f, h.ModTime), f.Close())
}

func (u *unpacker) makeSymlink(parent *os.File, base string, h *tar.Header) error {
	if h.Linkname == "" || len(h.Linkname) >= unix.PathMax || strings.ContainsAny(h.Linkname, "\x00") {
		return invalid("the image is malformed or hostile", "target %.200q of a symbolic link is malformed", h.Linkname)
	}
	if _, err := makeWay(parent, base, false); err != nil {
		return err
	}
	fd := int(parent.Fd())
	if err := unix.Symlinkat(h.Linkname, fd, base); err != nil {
		return err
	}
	if err := unix.Fchownat(fd, base, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("set owner: %w", err)
	}
	ts := timespecs(h.ModTime)
	return unix.UtimesNanoAt(fd, base, ts[:], unix.AT_SYMLINK_NOFOLLOW)
}

// makeLink gives an earlier entry a second name.
func (u *unpacker) makeLink(dir, base string, h *tar.Header) error {
	target, err := cleanPath(h.Linkname)
	if err != nil {
		return err
	}
	fromDir, fromBase := path.Split(target)
	from, err := u.tree.open(path.Clean(fromDir), unix.O_DIRECTORY)
	if err != nil {
		return noTarget(h.Linkname, err)
	}
	defer from.Close()
	kind, ok, err := typeAt(from, fromBase)
	if err != nil || !ok || kind == unix.S_IFDIR {
		return noTarget(h.Linkname, err)
	}
	to, err := u.tree.folder(dir, true)
	if err != nil {
		return err
	}
	if same, err := sameFile(from, fromBase, to, base); err != nil || same {
		return err // a link to itself: making way would remove both
	}
	if _, err := makeWay(to, base, false); err != nil {
		return err
	}
	if err := unix.Linkat(int(from.Fd()), fromBase, int(to.Fd()), base, 0); err != nil {
		return noTarget(h.Linkname, err)
	}
	return nil
}

func noTarget(target string, err error) error {
	if err != nil && !errors.Is(unusable(err), err) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return invalid("the image is malformed or hostile: a hard link must name an earlier file", "no file %.200q to link to", target)
}

// sameFile reports whether two names stand for one file.
func sameFile(a *os.File, aName string, b *os.File, bName string) (bool, error) {
	var x, y unix.Stat_t
	if err := unix.Fstatat(int(a.Fd()), aName, &x, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return false, err
	}
	err := unix.Fstatat(int(b.Fd()), bName, &y, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return err == nil && x.Ino == y.Ino && x.Dev == y.Dev, err
}

// finish sets the folders' times, now that all layers are applied. Folders that
// a later layer removed or replaced are left out.
func (u *unpacker) finish() error {
	for name, at := range u.times {
		f, err := u.tree.open(name, unix.O_DIRECTORY)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
			continue
		}
		if err != nil {
			return err
		}
		if err := errors.Join(setTime(f, at), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
