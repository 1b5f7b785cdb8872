package guest

import (
	"errors"
	"io/fs"
	"path"
	"syscall"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// Modes that new entries get when none is asked for.
const (
	newFile   = 0o644
	newFolder = 0o755
)

// stat describes one entry; with follow, what a link points to.
func (g *Guest) stat(p string, follow bool) (*guestv1.FileInfo, error) {
	name, err := cleanPath(p)
	if err != nil {
		return nil, err
	}
	look := g.files.lstat
	if follow {
		look = g.files.stat
	}
	info, err := look(name)
	if err != nil {
		return nil, fromOS(err)
	}
	return g.describe(name, info, &names{}), nil
}

// describe turns what the system says of name into what the host is told.
func (g *Guest) describe(name string, info fs.FileInfo, n *names) *guestv1.FileInfo {
	f := &guestv1.FileInfo{Path: []byte(name), Type: typeOf(info.Mode()), Size: info.Size(),
		Mode: modeBits(info.Mode()), ModifiedUnixNano: info.ModTime().UnixNano()}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		f.Uid, f.Gid = s.Uid, s.Gid
		f.Owner, f.Group = n.user(s.Uid), n.group(s.Gid)
	}
	switch f.Type {
	case "file", "dir":
		f.Attributed = g.files.attributed(name)
	case "symlink":
		if target, err := g.files.readlink(name); err == nil {
			f.Target = []byte(target)
		}
	}
	return f
}

func typeOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "dir"
	case m&fs.ModeSymlink != 0:
		return "symlink"
	}
	return "other"
}

// special pairs the bits beyond the permissions in both their forms.
var special = []struct {
	bit  uint32
	mode fs.FileMode
}{{0o4000, fs.ModeSetuid}, {0o2000, fs.ModeSetgid}, {0o1000, fs.ModeSticky}}

// modeBits is a mode as chmod(1) takes it: 0 to 07777.
func modeBits(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	for _, s := range special {
		if m&s.mode != 0 {
			bits |= s.bit
		}
	}
	return bits
}

// fileMode is the reverse of modeBits.
func fileMode(bits uint32) fs.FileMode {
	m := fs.FileMode(bits & 0o777)
	for _, s := range special {
		if bits&s.bit != 0 {
			m |= s.mode
		}
	}
	return m
}

func checkMode(bits uint32) error {
	if bits > 0o7777 {
		return refuse(invalid, "a mode is octal, 0 to 7777", "mode %o is out of range", bits)
	}
	return nil
}

// makeDir makes a folder, with parents those above it too.
func (g *Guest) makeDir(r *guestv1.MakeDirRequest) (*guestv1.FileInfo, error) {
	name, err := cleanPath(string(r.Path))
	if err != nil {
		return nil, err
	}
	if err := checkMode(r.Mode); err != nil {
		return nil, err
	}
	owner, err := g.owner(r.User)
	if err != nil {
		return nil, err
	}
	mode := r.Mode
	if mode == 0 {
		mode = newFolder
	}
	if r.Parents {
		if err := g.makeParents(name, owner); err != nil {
			return nil, err
		}
	}
	switch err := g.makeOne(name, mode, owner); {
	case err == nil:
	case r.Parents && errors.Is(err, fs.ErrExist):
		if info, err := g.files.stat(name); err != nil {
			return nil, fromOS(err)
		} else if !info.IsDir() {
			return nil, refuse(conflict, "remove it first", "there is something else than a folder")
		}
	default:
		return nil, withHint(fromOS(err), notFound, "set parents to make the folders above it")
	}
	return g.stat(name, true)
}

// makeOne makes one folder whose mode and owner are as asked, whatever the umask.
func (g *Guest) makeOne(name string, mode uint32, owner account) error {
	if err := g.files.mkdir(name, 0o700); err != nil {
		return err
	}
	if err := g.files.chown(name, owner.uid, owner.gid); err != nil {
		return err
	}
	return g.files.chmod(name, fileMode(mode))
}

// makeParents makes the missing folders above name.
func (g *Guest) makeParents(name string, owner account) error {
	parent := path.Dir(name)
	info, err := g.files.stat(parent)
	switch {
	case err == nil && info.IsDir():
		return nil
	case err == nil:
		return refuse(invalid, "a part of the path is not a folder", "%.200q is not a folder", parent)
	case !errors.Is(err, fs.ErrNotExist) || parent == name:
		return fromOS(err)
	}
	if err := g.makeParents(parent, owner); err != nil {
		return err
	}
	if err := g.makeOne(parent, newFolder, owner); err != nil && !errors.Is(err, fs.ErrExist) {
		return fromOS(err)
	}
	return nil
}

// owner is who new files belong to.
func (g *Guest) owner(spec string) (account, error) {
	if g.scratch() {
		return account{}, nil
	}
	return findAccount(spec)
}

// move renames an entry.
func (g *Guest) move(from, to string, replace bool) error {
	from, err := cleanPath(from)
	if err != nil {
		return err
	}
	if to, err = cleanPath(to); err != nil {
		return err
	}
	if from == "/" || to == "/" {
		return refuse(invalid, "name something in it", "the root cannot be moved or replaced")
	}
	if _, err := g.files.lstat(from); err != nil {
		return fromOS(err)
	}
	if _, err := g.files.lstat(to); err == nil && !replace && from != to {
		return refuse(conflict, "set replace, or choose another name", "%.200q exists", to)
	}
	return withHint(fromOS(g.files.rename(from, to)), notFound, "make the folder to move it to first")
}

// remove deletes an entry; with recursive, a folder and all that is in it.
func (g *Guest) remove(p string, recursive bool) error {
	name, err := cleanPath(p)
	if err != nil {
		return err
	}
	if name == "/" {
		return refuse(invalid, "name something in it", "the root cannot be removed")
	}
	if !recursive {
		return fromOS(g.files.remove(name))
	}
	if _, err := g.files.lstat(name); err != nil {
		return fromOS(err)
	}
	return fromOS(g.files.removeAll(name))
}
