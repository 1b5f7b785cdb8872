package guest

import (
	"bufio"
	"io"
	"os"
	"sync"
	"syscall"
)

// The databases of users and groups belong to the sandbox and may hold anything.
const (
	passwdFile  = "/etc/passwd"
	groupFile   = "/etc/group"
	maxDatabase = 4 << 20  // bytes that are read of one
	maxKept     = 64 << 10 // bytes of one that are kept in memory
)

// database is a text file whose lines every start of a process needs. They are
// kept while the file is the same one, unchanged: opening and reading it would
// cost more than half of what settles a start.
type database struct {
	path string

	mu    sync.Mutex
	stamp stamp
	lines []string // of the file that stamp is of
}

// stamp tells one state of a file from another.
type stamp struct {
	inode, device     uint64
	size              int64
	modified, changed syscall.Timespec
	known             bool
}

var passwd, groups = &database{path: passwdFile}, &database{path: groupFile}

// each gives the lines; a file that is not there, or is no plain file, has none.
func (d *database) each(f func(line string)) {
	for _, line := range d.read() {
		f(line)
	}
}

func (d *database) read() []string {
	var st syscall.Stat_t
	if err := syscall.Stat(d.path, &st); err != nil || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return nil
	}
	now := stamp{st.Ino, uint64(st.Dev), st.Size, st.Mtim, st.Ctim, true}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stamp == now {
		return d.lines
	}
	lines := d.load()
	if d.stamp = (stamp{}); st.Size <= maxKept {
		d.stamp, d.lines = now, lines
	} else {
		d.lines = nil
	}
	return lines
}

// load reads the file, which may have become another one since it was looked at.
func (d *database) load() (lines []string) {
	file, err := os.OpenFile(d.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	in := bufio.NewScanner(io.LimitReader(file, maxDatabase))
	for in.Scan() {
		lines = append(lines, in.Text())
	}
	return lines
}
