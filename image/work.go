package image

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// work is the directory of one build. Its lock file is locked, by this process
// and by the programs that the build runs, for as long as any of them lives.
type work struct {
	dir  string
	lock *os.File
}

func (w *work) root() string  { return filepath.Join(w.dir, "root") }
func (w *work) image() string { return filepath.Join(w.dir, "root.erofs") }
func (w *work) temp() string  { return filepath.Join(w.dir, "tmp") }

// newWork makes a work directory with an empty root and a place for temporary
// files in it, and removes those of dead builds.
func (s *Store) newWork() (*work, error) {
	s.working.Lock()
	defer s.working.Unlock()
	if err := s.sweepWork(); err != nil {
		return nil, err
	}
	dir := filepath.Join(s.workDir(), rand.Text())
	lock, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	w := &work{dir: dir, lock: lock}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	for _, d := range []string{dir, w.root(), w.temp()} {
		if err == nil {
			err = os.Mkdir(d, 0o755)
		}
	}
	if err == nil {
		err = os.Chmod(w.root(), 0o755) // whatever the umask
	}
	if err != nil {
		return nil, errors.Join(err, w.remove())
	}
	return w, nil
}

// remove removes the directory, then the lock file.
func (w *work) remove() error {
	err := removeTree(w.dir)
	if err == nil {
		err = os.Remove(w.lock.Name())
	}
	return errors.Join(err, w.lock.Close())
}

// sweepWork removes the work directories whose builds are dead.
func (s *Store) sweepWork() error {
	found, err := os.ReadDir(s.workDir())
	if err != nil {
		return err
	}
	for _, f := range found {
		dir := filepath.Join(s.workDir(), strings.TrimSuffix(f.Name(), ".lock"))
		lock, err := os.OpenFile(dir+".lock", os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = lock.Close() // its build lives
		} else if err == nil {
			err = (&work{dir: dir, lock: lock}).remove()
		} else {
			err = errors.Join(err, lock.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removeTree removes dir and all beneath it, but nothing of what is mounted
// there: mounts are taken off first, and if one stays, so does everything.
func removeTree(dir string) error {
	for range 16 { // mounts may lie on one another
		mounts, err := mountsBeneath(dir)
		if err != nil {
			return err
		}
		if len(mounts) == 0 {
			return os.RemoveAll(dir)
		}
		for _, m := range mounts {
			if err := unix.Unmount(m, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
				return fmt.Errorf("unmount %s: %w", m, err)
			}
		}
	}
	return fmt.Errorf("remove %s: something goes on being mounted beneath it", dir)
}

// mountsBeneath lists the mount points at or beneath dir, the innermost first.
func mountsBeneath(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		if p := unescapeMount(fields[4]); p == dir || strings.HasPrefix(p, dir+"/") {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	return found, lines.Err()
}

// unescapeMount undoes the kernel's octal escapes in a mount point.
func unescapeMount(p string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(p)
}
