package image

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// owner is who a file belongs to, inside.
type owner struct{ uid, gid int }

var (
	rootOwner = owner{0, 0}
	userOwner = owner{userID, userID}
)

// maxRead bounds the text files that are read out of a tree.
const maxRead = 4 << 20

// errNoFile says that a path names no regular file.
var errNoFile = errors.New("not a regular file")

// read returns the regular file at p, links followed within the tree. Without
// one the error is errNoFile.
func (t *tree) read(p string) ([]byte, error) {
	f, err := t.open(p, unix.O_RDONLY)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO):
		return nil, errNoFile
	case err != nil:
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errNoFile
	}
	if info.Size() > maxRead {
		return nil, invalid("the image is malformed or hostile", "%s has %d bytes, at most %d are taken", p, info.Size(), maxRead)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxRead))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p, err)
	}
	return b, nil
}

// has reports whether p names a regular file, links followed within the tree.
func (t *tree) has(p string) bool {
	f, err := t.open(p, unix.O_RDONLY)
	if err != nil {
		return false
	}
	info, err := f.Stat()
	return errors.Join(err, f.Close()) == nil && info.Mode().IsRegular()
}

// write puts a regular file at p, in place of whatever was there, and makes
// missing folders above it.
func (t *tree) write(p string, text []byte, mode uint32, o owner) error {
	dir, base := path.Split(p)
	parent, err := t.folder(path.Clean(dir), true)
	if err != nil {
		return err
	}
	if _, err := makeWay(parent, base, false); err != nil {
		return err
	}
	f, err := createAt(parent, base, func(w io.Writer) error { _, err := w.Write(text); return err })
	if err != nil {
		return err
	}
	return errors.Join(own(f, mode, o), f.Close())
}

// mkdir makes sure that p is a folder itself, no link to one, with that mode
// and owner; what it holds stays.
func (t *tree) mkdir(p string, mode uint32, o owner) error {
	dir, base := path.Split(p)
	parent, err := t.folder(path.Clean(dir), true)
	if err != nil {
		return err
	}
	exists, err := makeWay(parent, base, true)
	if err == nil && !exists {
		err = t.mkdirAt(parent, base)
	}
	if err != nil {
		return err
	}
	f, err := openFolderAt(parent, base)
	if err != nil {
		return err
	}
	return errors.Join(own(f, mode, o), f.Close())
}

// empty removes all that is in the folder p.
func (t *tree) empty(p string) error {
	f, err := t.folder(p, false)
	if err != nil {
		return err
	}
	names, err := readNames(f)
	for _, name := range names {
		if err == nil {
			err = removeAt(f, name, nil)
		}
	}
	return err
}

func own(f *os.File, mode uint32, o owner) error {
	if err := f.Chown(o.uid, o.gid); err != nil {
		return err
	}
	if err := unix.Fchmod(int(f.Fd()), mode); err != nil {
		return fmt.Errorf("set mode of %s: %w", f.Name(), err)
	}
	return nil
}
