package fusemount

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// kept are the folders that no mount may hide: the guest itself needs what is there.
var kept = []string{"/proc", "/sys", "/dev", "/etc", "/usr", "/bin", "/sbin", "/lib", "/lib64", "/.berth"}

// within reports whether p is dir or lies beneath it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// mount mounts over a folder for a caller and returns the connection to what will serve
// it.
func (s *Server) mount(r request, folder *os.File, who *unix.Ucred) (*mount, *os.File, error) {
	if folder == nil {
		return nil, nil, errors.New("no folder was given")
	}
	o, err := parseOptions(r.Options)
	if err != nil {
		return nil, nil, err
	}
	if o.allowOther && who.Uid != 0 && !othersAllowed() {
		return nil, nil, errors.New("option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf")
	}
	done, err := s.begin()
	if err != nil {
		return nil, nil, err
	}
	defer done()
	most := s.allowed()
	if most <= 0 {
		return nil, nil, errNotAllowed
	}
	s.prune()
	if len(s.mounts) >= most {
		return nil, nil, fmt.Errorf("%d file systems are mounted, and this sandbox may have no more at once", len(s.mounts))
	}
	m, err := s.place(folder, who)
	if err != nil {
		return nil, nil, err
	}
	server, err := openDevice()
	if err == nil {
		err = unix.Mount(o.source, self(folder), "fuse", o.flags, o.data(int(server.Fd()), who.Uid, who.Gid))
	}
	if err != nil {
		m.parent.Close()
		if server != nil {
			server.Close()
		}
		return nil, nil, fmt.Errorf("mount failed: %w", err)
	}
	s.mounts = append(s.mounts, m)
	return m, server, nil
}

var errNotAllowed = errors.New("this sandbox may not mount file systems")

// place checks a folder, and says how its mount will be found.
func (s *Server) place(folder *os.File, who *unix.Ucred) (*mount, error) {
	p, err := os.Readlink(self(folder))
	if err != nil {
		return nil, err
	}
	if p == "/" || slices.ContainsFunc(kept, func(dir string) bool { return within(p, dir) }) {
		return nil, fmt.Errorf("mounting over %s is not allowed: the sandbox itself needs it", p)
	}
	// What is beneath a mount is answered by its server, whom the guest never waits for.
	if i := slices.IndexFunc(s.mounts, func(m *mount) bool { return within(p, m.path) }); i >= 0 {
		return nil, fmt.Errorf("%s lies in what is mounted at %s", p, s.mounts[i].path)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(folder.Fd()), &st); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return nil, fmt.Errorf("%s is not a folder", p)
	}
	if who.Uid != 0 && (st.Uid != who.Uid || st.Mode&unix.S_IWUSR == 0) {
		return nil, fmt.Errorf("mounting over %s is not allowed: it is not the caller's own", p)
	}
	parent, err := unix.Openat(int(folder.Fd()), "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &mount{path: p, parent: os.NewFile(uintptr(parent), path.Dir(p)), name: path.Base(p), uid: who.Uid}, nil
}

// self is the name of an open file: it means that file, whatever its own names are.
func self(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// openDevice opens the kernel's side of a file system. Whatever else lies there is not
// taken for it.
func openDevice() (*os.File, error) {
	fd, err := unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", device, err)
	}
	f := os.NewFile(uintptr(fd), device)
	var st unix.Stat_t
	err = unix.Fstat(fd, &st)
	if err == nil && (st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != deviceNumber) {
		err = fmt.Errorf("%s is another device", device)
	}
	if err == nil {
		err = unix.SetNonblock(fd, false) // as servers expect it
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// othersAllowed reports whether users may let others in (fuse.conf(5)).
func othersAllowed() bool {
	f, err := os.Open("/etc/fuse.conf")
	if err != nil {
		return false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 0; n < 1000 && lines.Scan(); n++ {
		if strings.TrimSpace(lines.Text()) == "user_allow_other" {
			return true
		}
	}
	return false
}

// unmount ends a mount that was made here, for its owner or for root.
func (s *Server) unmount(r request, who *unix.Ucred) error {
	done, err := s.begin()
	if err != nil {
		return err
	}
	defer done()
	s.prune()
	if r.All {
		return s.unmountAll(r, who)
	}
	i := slices.IndexFunc(s.mounts, func(m *mount) bool { return m.path == r.Path })
	if i < 0 {
		return fmt.Errorf("entry for %s not found: nothing was mounted there", r.Path)
	}
	if m := s.mounts[i]; who.Uid != 0 && who.Uid != m.uid {
		return fmt.Errorf("unmounting %s is not allowed: it is another user's", r.Path)
	}
	return s.end(i, r.Lazy)
}

// prune forgets what is mounted no more: servers that end unmount what they served. Whose turn
// it is calls it.
func (s *Server) prune() {
	s.mounts = slices.DeleteFunc(s.mounts, func(m *mount) bool {
		if m.there() {
			return false
		}
		m.parent.Close()
		return true
	})
}

// there reports whether something else lies at a mount's place than in the folder around it.
// Its server is not asked.
func (m *mount) there() bool {
	const flags = unix.AT_SYMLINK_NOFOLLOW | unix.AT_STATX_DONT_SYNC | unix.AT_NO_AUTOMOUNT
	var around, at unix.Statx_t
	dir := int(m.parent.Fd())
	if err := unix.Statx(dir, "", flags|unix.AT_EMPTY_PATH, 0, &around); err != nil {
		return true
	}
	err := unix.Statx(dir, m.name, flags, 0, &at)
	return !errors.Is(err, unix.ENOENT) && (err != nil || at.Dev_major != around.Dev_major || at.Dev_minor != around.Dev_minor)
}

// unmountAll ends what is a caller's, the newest first. Whose turn it is calls it.
func (s *Server) unmountAll(r request, who *unix.Ucred) (err error) {
	for i := len(s.mounts) - 1; i >= 0; i-- {
		if who.Uid == 0 || who.Uid == s.mounts[i].uid {
			err = errors.Join(err, s.end(i, r.Lazy))
		}
	}
	return err
}

// takeBack ends a mount that nobody will serve.
func (s *Server) takeBack(m *mount) {
	done, err := s.begin()
	if err != nil {
		return // it stays listed, for its owner to try
	}
	defer done()
	if i := slices.Index(s.mounts, m); i >= 0 {
		_ = s.end(i, true) // what cannot be unmounted stays listed, for its owner to try
	}
}

// end unmounts one of the mounts. Whose turn it is calls it.
func (s *Server) end(i int, lazy bool) error {
	m, flags := s.mounts[i], unix.UMOUNT_NOFOLLOW
	if lazy {
		flags |= unix.MNT_DETACH
	}
	err := unix.Unmount(self(m.parent)+"/"+m.name, flags)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // it is no mount any more
		return fmt.Errorf("failed to unmount %s: %w", m.path, err)
	}
	m.parent.Close()
	s.mounts = slices.Delete(s.mounts, i, i+1)
	return nil
}
