package guest

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path"
	"syscall"
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// change is what to set of entries.
type change struct {
	mode     *uint32
	owner    *account
	modified *time.Time
}

// change sets what is asked for of an entry, whose links are followed.
func (g *Guest) change(ctx context.Context, r *guestv1.ChangeRequest) (*guestv1.FileInfo, error) {
	name, err := cleanPath(string(r.Path))
	if err != nil {
		return nil, err
	}
	c, err := g.readChange(r)
	if err != nil {
		return nil, err
	}
	target, info, err := g.resolve(name)
	if err == nil && info == nil {
		if !r.Create {
			return nil, fromOS(fs.ErrNotExist)
		}
		if err = g.touch(target, r.User); err == nil {
			info, err = g.files.lstat(target)
		}
	}
	if err != nil {
		return nil, fromOS(err)
	}
	if err := g.set(target, info, c); err != nil {
		return nil, fromOS(err)
	}
	if r.Recursive && info.IsDir() {
		c.modified = nil
		if err := g.setBeneath(ctx, target, c, 0); err != nil {
			return nil, fromOS(err)
		}
	}
	return g.stat(name, true)
}

func (g *Guest) readChange(r *guestv1.ChangeRequest) (change, error) {
	c := change{mode: r.Mode}
	if r.Mode != nil {
		if err := checkMode(*r.Mode); err != nil {
			return c, err
		}
	}
	if r.Owner != "" {
		who, err := g.owner(r.Owner)
		if err != nil {
			return c, err
		}
		c.owner = &who
	}
	if n := r.ModifiedUnixNano; n != nil {
		if *n == math.MinInt64 {
			return c, refuse(invalid, "", "the time is out of range")
		}
		at := time.Unix(0, *n)
		c.modified = &at
	}
	return c, nil
}

// resolve follows the links at the end of a path. What is not there is nil.
func (g *Guest) resolve(name string) (string, fs.FileInfo, error) {
	for range maxLinks {
		info, err := g.files.lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil, nil
		}
		if err != nil || info.Mode()&fs.ModeSymlink == 0 {
			return name, info, err
		}
		target, err := g.files.readlink(name)
		if err != nil {
			return "", nil, err
		}
		if _, err := g.files.stat(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, err // in a scratch folder, a link that leaves it
		}
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(name), target)
		}
		name = path.Clean(target)
	}
	return "", nil, syscall.ELOOP
}

// touch makes an empty file.
func (g *Guest) touch(name, user string) error {
	owner, err := g.owner(user)
	if err != nil {
		return err
	}
	f, err := g.files.open(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, newFile)
	if errors.Is(err, fs.ErrExist) {
		return nil // somebody was faster
	}
	if err != nil {
		return withHint(fromOS(err), notFound, "make the folders above it first")
	}
	f.Close()
	if err := g.files.chown(name, owner.uid, owner.gid); err != nil {
		return err
	}
	return g.files.chmod(name, newFile)
}

// set changes one entry. The owner comes first: changing it clears setuid.
func (g *Guest) set(name string, info fs.FileInfo, c change) error {
	if c.owner != nil {
		if err := g.files.chown(name, c.owner.uid, c.owner.gid); err != nil {
			return err
		}
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		return nil // its mode counts for nothing
	}
	if c.mode != nil {
		if err := g.files.chmod(name, fileMode(*c.mode)); err != nil {
			return err
		}
	}
	if c.modified != nil {
		return g.files.chtimes(name, *c.modified)
	}
	return nil
}

// setBeneath changes all that lies in a folder; links are changed, not followed.
func (g *Guest) setBeneath(ctx context.Context, dir string, c change, depth int) error {
	if depth > maxNested {
		return refuse(invalid, "", "%.200q lies too deep", dir)
	}
	return g.eachName(ctx, dir, func(n string) error {
		name := path.Join(dir, n)
		info, err := g.files.lstat(name)
		if err == nil {
			err = g.set(name, info, c)
		}
		if err == nil && info.IsDir() {
			err = g.setBeneath(ctx, name, c, depth+1)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		return err
	})
}

// link makes a symbolic link. Its target may be any text.
func (g *Guest) link(r *guestv1.LinkRequest) (*guestv1.FileInfo, error) {
	name, err := cleanPath(string(r.Path))
	if err != nil {
		return nil, err
	}
	target := string(r.Target)
	if target == "" || len(target) > maxPath {
		return nil, refuse(invalid, "", "the target has %d bytes, 1 to %d are taken", len(target), maxPath)
	}
	owner, err := g.owner(r.User)
	if err != nil {
		return nil, err
	}
	info, err := g.files.lstat(name)
	switch {
	case err == nil && !r.Replace:
		return nil, refuse(conflict, "set replace, or choose another name", "%.200q exists", name)
	case err == nil && info.IsDir():
		return nil, refuse(conflict, "remove it first", "%.200q is a folder", name)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fromOS(err)
	}
	err = g.beside(name, func(temp string) error {
		if err := g.files.symlink(target, temp); err != nil {
			return err
		}
		return g.files.chown(temp, owner.uid, owner.gid)
	})
	if err != nil {
		return nil, withHint(fromOS(err), notFound, "make the folders above it first")
	}
	return g.stat(name, false)
}
