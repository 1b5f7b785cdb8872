package tarball

import (
	"archive/tar"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// Unpacking is one tar stream to be turned into what lies beneath Root.
type Unpacking struct {
	Root *os.Root

	// Mode is what of an entry's mode is taken over, such as 0777: without
	// setuid and its like.
	Mode uint32

	// Owner gives the owner of what an entry becomes; nil leaves it to the
	// system.
	Owner func(h *tar.Header) (uid, gid int)

	// Attributes says that file capabilities, and attributes that users have set, are
	// taken over. It is for those who may give programs capabilities where Root lies.
	Attributes bool

	// New says that Root was made for the stream: it too gets the mode and time
	// that the stream has for it.
	New bool

	// Strict is for streams of strangers that land where other programs work:
	// symbolic links that lead out of Root are left out, and no entry lies
	// behind a link. Without it links may say anything, and what lies behind one
	// is written as long as it is beneath Root.
	Strict bool

	// Lenient leaves devices and pipes out in place of refusing the stream.
	Lenient bool

	// Skipped is told of what is left out; nil ignores it.
	Skipped func(name, reason string)
}

// Run reads the stream to its end. Files are put in their places whole; folders
// that are there already keep their modes and owners. An error leaves what was
// unpacked before it.
func (u *Unpacking) Run(ctx context.Context, r io.Reader) (Counts, error) {
	tail := &tailReader{r: &steady{ctx, r}}
	k := &unpacker{Unpacking: u, ctx: ctx, in: tar.NewReader(tail)}
	err := k.entries()
	if err == nil && tail.cut() {
		err = io.ErrUnexpectedEOF
	}
	if k.dir != nil {
		k.dir.Close()
	}
	return k.counts, errors.Join(err, k.finish())
}

// unpacker is an Unpacking under way.
type unpacker struct {
	*Unpacking
	ctx    context.Context
	in     *tar.Reader
	counts Counts

	at   string   // the folder that dir is
	dir  *os.Root // of the last entry; nil at first
	made []made
}

// made is a folder that gets its mode and time when all that it holds is there.
type made struct {
	name string
	mode fs.FileMode
	time time.Time
}

func (k *unpacker) entries() error {
	for {
		if err := k.ctx.Err(); err != nil {
			return err
		}
		h, err := k.in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, tar.ErrHeader) || errors.Is(err, tar.ErrFieldTooLong) {
			return fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		if err != nil {
			return err
		}
		if err := k.entry(h); err != nil {
			var known *EntryError
			if errors.As(err, &known) || k.ctx.Err() != nil {
				return err
			}
			return fmt.Errorf("entry %.200q: %w", h.Name, err)
		}
	}
}

func (k *unpacker) entry(h *tar.Header) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := localName(h.Name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		return k.folder(h, name)
	case tar.TypeReg, tar.TypeRegA, tar.TypeCont, tar.TypeGNUSparse: //nolint:staticcheck // old streams have TypeRegA
		return k.file(h, name)
	case tar.TypeSymlink:
		return k.symlink(h, name)
	case tar.TypeLink:
		return k.hardLink(h, name)
	}
	what := "it is of an unknown type"
	if h.Typeflag == tar.TypeChar || h.Typeflag == tar.TypeBlock || h.Typeflag == tar.TypeFifo {
		what = "it is a device or a pipe"
	}
	if !k.Lenient {
		return &EntryError{h.Name, what}
	}
	k.skip(name, what)
	return nil
}

func (k *unpacker) skip(name, reason string) {
	if k.Skipped != nil {
		k.Skipped(name, reason)
	}
}

// mode is what is taken over of an entry's mode.
func (k *unpacker) mode(h *tar.Header) fs.FileMode { return bits(uint32(h.Mode) & k.Mode & 0o7777) }

// bits turns a mode as chmod(1) takes it into Go's form.
func bits(m uint32) fs.FileMode {
	out := fs.FileMode(m & 0o777)
	for bit, mode := range map[uint32]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if m&bit != 0 {
			out |= mode
		}
	}
	return out
}

// parent opens the folder that name lies in, making what is missing, and gives
// the last part of name.
func (k *unpacker) parent(h *tar.Header, name string) (*os.Root, string, error) {
	dir, base := path.Split(name)
	dir = path.Clean(dir)
	if k.dir != nil && k.at == dir {
		return k.dir, base, nil
	}
	open, err := k.reach(h, dir)
	if err != nil {
		return nil, "", err
	}
	if k.dir != nil {
		k.dir.Close()
	}
	k.at, k.dir = dir, open
	return open, base, nil
}

// reach opens a folder beneath Root and makes those on the way that are missing.
func (k *unpacker) reach(h *tar.Header, dir string) (*os.Root, error) {
	if err := k.checkWay(dir); err != nil {
		return nil, err
	}
	open, err := k.Root.OpenRoot(dir)
	if !errors.Is(err, fs.ErrNotExist) {
		return open, err
	}
	above, err := k.reach(h, path.Dir(dir))
	if err != nil {
		return nil, err
	}
	above.Close()
	if err := k.Root.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := k.own(k.Root, dir, h); err != nil {
		return nil, err
	}
	return k.Root.OpenRoot(dir)
}

// checkWay refuses, when strict, a way that runs through a symbolic link.
func (k *unpacker) checkWay(dir string) error {
	if !k.Strict {
		return nil
	}
	for ; dir != "."; dir = path.Dir(dir) {
		info, err := k.Root.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if !info.IsDir() {
			return &EntryError{dir, "it is no folder, but entries lie behind it"}
		}
	}
	return nil
}

// own gives an entry its owner.
func (k *unpacker) own(dir *os.Root, name string, h *tar.Header) error {
	if k.Owner == nil {
		return nil
	}
	uid, gid := k.Owner(h)
	return dir.Lchown(name, uid, gid)
}

func (k *unpacker) folder(h *tar.Header, name string) error {
	k.counts.Folders++
	if name == "." {
		if k.New {
			k.made = append(k.made, made{name, k.mode(h), h.ModTime})
		}
		return nil
	}
	dir, base, err := k.parent(h, name)
	if err != nil {
		return err
	}
	err = dir.Mkdir(base, 0o700)
	if errors.Is(err, fs.ErrExist) {
		look := dir.Stat
		if k.Strict {
			look = dir.Lstat
		}
		if info, serr := look(base); serr != nil {
			return serr
		} else if info.IsDir() {
			return nil
		}
		return &EntryError{h.Name, "there is something else than a folder"}
	}
	if err != nil {
		return err
	}
	k.made = append(k.made, made{name, k.mode(h), h.ModTime})
	if err := k.own(dir, base, h); err != nil || !k.Attributes || len(Attributes(h.PAXRecords)) == 0 {
		return err
	}
	f, err := dir.OpenFile(base, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(setAttributes(f, h.Name, h.PAXRecords), f.Close())
}

// finish gives the folders that were made their modes and times, the inner ones
// first.
func (k *unpacker) finish() error {
	var first error
	for i := len(k.made) - 1; i >= 0; i-- {
		m := k.made[i]
		err := k.Root.Chmod(m.name, m.mode)
		if err == nil && !m.time.IsZero() {
			err = k.Root.Chtimes(m.name, m.time, m.time)
		}
		if err != nil && first == nil && !errors.Is(err, fs.ErrNotExist) {
			first = err
		}
	}
	return first
}

// file writes beside the place and renames when all has come.
func (k *unpacker) file(h *tar.Header, name string) (err error) {
	dir, base, err := k.parent(h, name)
	if err != nil {
		return err
	}
	temp := ".berth-" + rand.Text()
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			dir.Remove(temp)
		}
	}()
	n, err := CopySparse(k.ctx, f, k.in)
	k.counts.Bytes += n
	if err != nil {
		return err
	}
	if err := k.own(dir, temp, h); err != nil {
		return err
	}
	if err := f.Chmod(k.mode(h)); err != nil {
		return err
	}
	if k.Attributes { // last: what changes the owner takes a capability away
		if err := setAttributes(f, h.Name, h.PAXRecords); err != nil {
			return err
		}
	}
	if err := f.Close(); err != nil {
		return err
	}
	if !h.ModTime.IsZero() {
		if err := dir.Chtimes(temp, h.ModTime, h.ModTime); err != nil {
			return err
		}
	}
	k.counts.Files++
	return dir.Rename(temp, base)
}

func (k *unpacker) symlink(h *tar.Header, name string) error {
	if h.Linkname == "" {
		return &EntryError{h.Name, "it is a link to nowhere"}
	}
	if k.Strict && !staysInside(name, h.Linkname) {
		k.skip(name, "it is a link that leads out of the folder")
		return nil
	}
	dir, base, err := k.parent(h, name)
	if err != nil {
		return err
	}
	if err := clear(dir, base); err != nil {
		return err
	}
	if err := dir.Symlink(h.Linkname, base); err != nil {
		return err
	}
	k.counts.Links++
	return k.own(dir, base, h)
}

// hardLink gives a file that is beneath Root another name.
func (k *unpacker) hardLink(h *tar.Header, name string) error {
	target, err := localName(h.Linkname)
	if err != nil {
		return &EntryError{h.Name, "it is a hard link to a place outside"}
	}
	if name == target {
		return nil
	}
	if err := k.checkWay(path.Dir(target)); err != nil {
		return err
	}
	dir, base, err := k.parent(h, name)
	if err != nil {
		return err
	}
	info, err := k.Root.Lstat(target)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &EntryError{h.Name, "it is a hard link to something else than a file"}
	}
	if err := clear(dir, base); err != nil {
		return err
	}
	k.counts.Links++
	return k.Root.Link(target, name)
}

// clear removes what a link is to take the place of; folders are left.
func clear(dir *os.Root, base string) error {
	info, err := dir.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.IsDir():
		return &EntryError{base, "there is a folder in its place"}
	}
	return dir.Remove(base)
}
