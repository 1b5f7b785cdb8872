package guest

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/tarball"
)

// beside lets make put something under a name of its own in name's folder, then
// renames it over name: there is the old thing or the whole new one.
func (g *Guest) beside(name string, make func(temp string) error) error {
	temp := path.Join(path.Dir(name), ".berth-"+rand.Text())
	err := make(temp)
	if err == nil {
		err = g.files.rename(temp, name)
	}
	if err != nil {
		_ = g.files.remove(temp) // it may not be there
	}
	return err
}

// copy copies an entry.
func (g *Guest) copy(ctx context.Context, r *guestv1.CopyRequest) (*guestv1.FileInfo, error) {
	from, err := cleanPath(string(r.From))
	if err != nil {
		return nil, err
	}
	to, err := cleanPath(string(r.To))
	if err != nil {
		return nil, err
	}
	info, err := g.files.lstat(from)
	if err != nil {
		return nil, fromOS(err)
	}
	switch {
	case info.IsDir() && !r.Recursive:
		return nil, refuse(invalid, "set recursive to copy a folder with what is in it", "%.200q is a folder", from)
	case from == to || strings.HasPrefix(to+"/", strings.TrimSuffix(from, "/")+"/"):
		return nil, refuse(invalid, "", "%.200q lies in %.200q", to, from)
	}
	if _, err := g.files.lstat(to); err == nil && !r.Replace {
		return nil, refuse(conflict, "set replace, or choose another name", "%.200q exists", to)
	}
	c := &copying{g: g, ctx: ctx}
	if err := c.entry(from, to, info, 0); err != nil {
		return nil, withHint(fromOS(err), notFound, "make the folder to copy it to first")
	}
	return g.stat(to, false)
}

// copying is one copy under way.
type copying struct {
	g   *Guest
	ctx context.Context
	top fs.FileInfo // the first folder that it made: not to be copied into itself
}

func (c *copying) entry(from, to string, info fs.FileInfo, depth int) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	files := c.g.files
	switch mode := info.Mode(); {
	case mode.IsDir():
		return c.folder(from, to, info, depth)
	case mode.IsRegular():
		return c.g.beside(to, func(temp string) error { return c.file(from, temp) })
	case mode&fs.ModeSymlink != 0:
		target, err := files.readlink(from)
		if err != nil {
			return err
		}
		return c.g.beside(to, func(temp string) error {
			if err := files.symlink(target, temp); err != nil {
				return err
			}
			return c.own(temp, info)
		})
	}
	if depth > 0 {
		return nil // a socket in a tree is not worth failing for
	}
	return refuse(invalid, "devices and pipes are copied by a process", "%.200q is neither a file nor a folder", from)
}

func (c *copying) own(name string, info fs.FileInfo) error {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return c.g.files.chown(name, s.Uid, s.Gid)
	}
	return nil
}

// file copies bytes, attributes, owner, mode and time into a new file.
func (c *copying) file(from, temp string) error {
	files := c.g.files
	in, info, err := c.g.openToRead(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := files.open(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	if _, err := tarball.CopySparse(c.ctx, out, in); err != nil {
		return err
	}
	if err := copyAttributes(in, out); err != nil {
		return err
	}
	st, err := in.Stat()
	if err != nil {
		return err
	}
	if err := files.chown(temp, info.Uid, info.Gid); err != nil {
		return err
	}
	if err := files.chmod(temp, st.Mode()); err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	return files.chtimes(temp, st.ModTime())
}

// folder copies a folder into a new one, or into one that is there.
func (c *copying) folder(from, to string, info fs.FileInfo, depth int) error {
	files := c.g.files
	if depth > maxNested {
		return refuse(invalid, "", "%.200q lies too deep", from)
	}
	if c.top != nil && os.SameFile(c.top, info) {
		return nil
	}
	err := files.mkdir(to, 0o700)
	made := err == nil
	there, serr := files.stat(to)
	switch {
	case err != nil && !errors.Is(err, fs.ErrExist):
		return err
	case serr != nil:
		return serr
	case !there.IsDir():
		return refuse(conflict, "remove it first", "%.200q is something else than a folder", to)
	}
	if c.top == nil {
		c.top = there
	}
	err = c.g.eachName(c.ctx, from, func(n string) error {
		inside, err := files.lstat(path.Join(from, n))
		if err == nil {
			err = c.entry(path.Join(from, n), path.Join(to, n), inside, depth+1)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		return err
	})
	if err != nil || !made {
		return err
	}
	if err := c.own(to, info); err != nil {
		return err
	}
	if err := files.chmod(to, info.Mode()); err != nil {
		return err
	}
	return files.chtimes(to, info.ModTime())
}
