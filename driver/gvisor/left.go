package gvisor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// maxLeft is how many files a child's memory may lie in. Each generation adds
// one; then its parent's is written anew, into one.
const maxLeft = 4

// memoryFiles is what the engine says of a machine's memory.
type memoryFiles struct {
	Memory int   // descriptor, in the engine, of what is its own
	Pages  []int // of what it has not written yet, in the order in which its index counts them
	Kept   []int // of what tells others that it still uses theirs

	Cold   int64 // bytes in Pages
	Frozen int64 // bytes of Memory that stay as they are for others
	Lacks  int64 // bytes of Pages that have not come yet
}

func (m *machine) memoryFiles() (f memoryFiles, err error) {
	c, err := m.place.control(m.id)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED) {
		return f, &sandbox.Error{Op: "look at its memory", Kind: sandbox.Unavailable, ID: m.id, Err: errGone}
	}
	if err != nil {
		return f, err
	}
	defer c.Close()
	if err := c.Call("containerManager.ColdFiles", &struct{}{}, &f); err != nil {
		return f, fmt.Errorf("look at its memory: %w", err)
	}
	return f, nil
}

// toWrite is how many bytes the machine's memory may take on a disk.
func (m *machine) toWrite() (int64, error) {
	f, err := m.memoryFiles()
	if err != nil {
		return 0, err
	}
	return m.toWriteOf(f)
}

// toWriteOf is toWrite for who knows where the memory lies.
func (m *machine) toWriteOf(f memoryFiles) (int64, error) {
	own, err := m.group.memoryUse()
	if err != nil {
		return 0, m.usageError(err)
	}
	return own + f.Cold, nil
}

// left is a machine's private memory that its children read where it is. The
// machine keeps it as it was until the last of them, and of theirs, has ended:
// each has the writing end of a pipe open, of which the machine reads the end.
type left struct {
	files []*os.File // in the order in which an index counts them, then what is only kept open
	lease *os.File   // the end of the pipe for the machine
}

// leave opens what the machine's memory lies in. It is nil if that are too many
// files already.
func (m *machine) leave(f memoryFiles) (l *left, err error) {
	if len(f.Pages) >= maxLeft {
		return nil, nil
	}
	l = &left{}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	open := func(flags int, fds ...int) error {
		for _, fd := range fds {
			one, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/%d", m.state.Process.PID, fd), flags, 0)
			if err != nil {
				return err
			}
			l.files = append(l.files, one)
		}
		return nil
	}
	if err := errors.Join(open(os.O_RDONLY, f.Memory), open(os.O_RDONLY, f.Pages...)); err != nil {
		return nil, err
	}
	lease, end, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	l.lease = lease
	l.files = append(l.files, end)
	// For reading too, or it would wait for somebody who does.
	if err := open(os.O_RDWR, f.Kept...); err != nil {
		return nil, err
	}
	// The process with that number was the engine all the time.
	if err := unix.PidfdSendSignal(int(m.pidfd.Fd()), 0, nil, 0); err != nil {
		return nil, &sandbox.Error{Op: "look at its memory", Kind: sandbox.Unavailable, Err: err}
	}
	return l, nil
}

// link gives the files the names in dir by which the engine opens them.
func (l *left) link(dir string) error {
	for i, f := range l.files {
		if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), filepath.Join(dir, coldFile(i))); err != nil {
			return err
		}
	}
	return nil
}

// coldFile is the name of the i-th file of private memory.
func coldFile(i int) string {
	if i == 0 {
		return coldName
	}
	return coldName + "." + strconv.Itoa(i)
}

// close lets go of the files. What the children have opened stays.
func (l *left) close() error {
	var errs []error
	for _, f := range append(l.files, l.lease) {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// widen moves the machine's wall out by what it keeps for its children, and may
// have to copy.
func (m *machine) widen(before int64) error {
	f, err := m.memoryFiles()
	if err != nil {
		return err
	}
	if f.Frozen <= before {
		return nil
	}
	return m.usageError(m.group.growMemory(f.Frozen - before))
}
