package tarball

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"

	"golang.org/x/sys/unix"
)

// Packing is one tar stream to be made.
type Packing struct {
	Root *os.Root

	// Name of the entry to pack: "." for what Root holds, Root itself first. An
	// entry that is no folder becomes the only one of the stream.
	Name string

	// Leave says what is left out, with all beneath it; nil leaves out nothing.
	Leave func(name string) bool

	// Skipped is told of what no stream can hold (devices, sockets, pipes) and of
	// what the kernel makes up (/proc); nil ignores it.
	Skipped func(name string)
}

// maxTwins bounds how many names of files with several are remembered; beyond
// it each name becomes a file of its own.
const maxTwins = 100_000

// Run writes the stream. Modes, times to the nanosecond, owners' numbers,
// symbolic and hard links are kept. Entries that vanish meanwhile are left out;
// a file that shrinks while it is read is an error, what one grows is cut off.
func (p *Packing) Run(ctx context.Context, w io.Writer) (Counts, error) {
	k := &packer{Packing: p, ctx: ctx, out: tar.NewWriter(w), twins: map[twin]string{}, buf: make([]byte, 128<<10)}
	info, err := p.Root.Lstat(p.Name)
	if err != nil {
		return k.counts, err
	}
	if p.Name == "." {
		err = k.folder(p.Root, info, "", 0)
	} else {
		err = k.entry(p.Root, p.Name, path.Base(p.Name), 0)
	}
	if err == nil {
		err = k.out.Close()
	}
	return k.counts, err
}

// packer is a Packing under way.
type packer struct {
	*Packing
	ctx    context.Context
	out    *tar.Writer
	counts Counts
	twins  map[twin]string
	buf    []byte
}

// twin is a file that has several names.
type twin struct{ dev, ino uint64 }

// entry packs the entry file of dir under a name of the stream.
func (k *packer) entry(dir *os.Root, file, name string, depth int) error {
	if err := k.ctx.Err(); err != nil {
		return err
	}
	if k.Leave != nil && k.Leave(name) {
		return nil
	}
	info, err := dir.Lstat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, syscall.EOPNOTSUPP) { // there, but of a kind that the kernel cannot read
		k.skip(name)
		return nil
	}
	if err != nil {
		return err
	}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return k.file(dir, file, name)
	case mode&fs.ModeSymlink != 0:
		target, err := dir.Readlink(file)
		if err != nil {
			return ignoreVanished(err)
		}
		k.counts.Links++
		return k.header(info, name, target, nil)
	case mode.IsDir():
		sub, err := dir.OpenRoot(file)
		if err != nil {
			return ignoreVanished(err)
		}
		defer sub.Close()
		return k.folder(sub, info, name, depth)
	}
	k.skip(name)
	return nil
}

func (k *packer) skip(name string) {
	if k.Skipped != nil {
		k.Skipped(name)
	}
}

func ignoreVanished(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ELOOP) || errors.Is(err, syscall.ENOTDIR) {
		return nil // removed, or replaced by something else
	}
	return err
}

// folder packs a folder, then what it holds. Name "" is the root's own.
func (k *packer) folder(dir *os.Root, info fs.FileInfo, name string, depth int) error {
	if depth > maxDepth {
		return &EntryError{name, "it lies too deep"}
	}
	f, err := dir.Open(".")
	if err != nil {
		return ignoreVanished(err)
	}
	defer f.Close()
	if name != "" && madeUp(f) {
		k.skip(name)
		return nil
	}
	k.counts.Folders++
	if err := k.header(info, name+"/", "", AttributesOf(f)); err != nil {
		return err
	}
	for {
		names, err := f.Readdirnames(1024)
		for _, n := range names {
			if err := k.entry(dir, n, path.Join(name, n), depth+1); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// kernelMade lists the file systems whose files are no data.
var kernelMade = map[int64]bool{unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.DEVPTS_SUPER_MAGIC: true,
	unix.CGROUP_SUPER_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true}

// madeUp reports whether a folder is the kernel's own.
func madeUp(f *os.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &st) == nil && kernelMade[int64(st.Type)]
}

// file packs a regular file, or the link to its twin.
func (k *packer) file(dir *os.Root, file, name string) error {
	f, err := dir.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return ignoreVanished(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil // replaced meanwhile
	}
	if first := k.twinOf(info, name); first != "" {
		k.counts.Links++
		h, err := newHeader(info, name, "")
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname, h.Size = tar.TypeLink, first, 0
		return k.out.WriteHeader(h)
	}
	if err := k.header(info, name, "", AttributesOf(f)); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{k.out}, &steady{k.ctx, io.LimitReader(f, info.Size())}, k.buf)
	k.counts.Files++
	k.counts.Bytes += n
	if err == nil && n < info.Size() {
		err = &EntryError{name, "it shrank while it was read"}
	}
	return err
}

// steady is a reader that ends with its context.
type steady struct {
	ctx context.Context
	r   io.Reader
}

func (s *steady) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	return s.r.Read(b)
}

// twinOf is the name under which the same file is in the stream already, or "".
func (k *packer) twinOf(info fs.FileInfo, name string) string {
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || s.Nlink < 2 {
		return ""
	}
	id := twin{s.Dev, s.Ino}
	first := k.twins[id]
	if first == "" && len(k.twins) < maxTwins {
		k.twins[id] = name
	}
	return first
}

func (k *packer) header(info fs.FileInfo, name, target string, attributes map[string]string) error {
	h, err := newHeader(info, name, target)
	if err != nil {
		return err
	}
	h.PAXRecords = attributes
	return k.out.WriteHeader(h)
}

// newHeader describes an entry. A name of the root's own is "./".
func newHeader(info fs.FileInfo, name, target string) (*tar.Header, error) {
	if name == "/" {
		name = "./"
	}
	h, err := tar.FileInfoHeader(anonymous{info}, target)
	if err != nil {
		return nil, fmt.Errorf("describe %q: %w", name, err)
	}
	h.Name, h.Format = name, tar.FormatPAX
	return h, nil
}

// anonymous keeps package tar from looking up names for the owner's numbers in
// databases that belong to somebody else.
type anonymous struct{ fs.FileInfo }

func (anonymous) Uname() (string, error) { return "", nil }
func (anonymous) Gname() (string, error) { return "", nil }
