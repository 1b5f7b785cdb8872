package gvisor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// engineProgram is the path of the program that is the engine. A program of its own
// lies in memory, so that it can be run however full the disk is; what runs of it
// outlives this process.
func (d *Driver) engineProgram() (string, error) {
	if d.engine == nil {
		return d.exe, nil
	}
	d.programMu.Lock()
	defer d.programMu.Unlock()
	if d.program == nil {
		f, err := d.loadProgram()
		if err != nil {
			return "", fmt.Errorf("load engine: %w", err)
		}
		d.program = f
	}
	return fmt.Sprintf("/proc/self/fd/%d", d.program.Fd()), nil // also of the process that is to become it
}

// loadProgram copies the program to where nobody can change it: what runs of it could,
// through its /proc, if it were a file like others.
func (d *Driver) loadProgram() (_ *os.File, err error) {
	from, err := d.engine()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	// What a process that is being started has open for writing cannot be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	st, err := from.Stat()
	if err != nil {
		return nil, err
	}
	root, err := mountScratch(st.Size() + 2*largePage)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EPERM) {
		return inMemory(from)
	}
	if err != nil {
		return nil, err
	}
	defer root.Close() // it lives with the file
	return inLargePages(root, from)
}

// inLargePages puts a program on a file system of its own, which nobody can write to
// then. In pages as large as can be had, a start of it takes few faults.
func inLargePages(root *os.File, from fs.File) (*os.File, error) {
	name := fmt.Sprintf("/proc/self/fd/%d/%s", root.Fd(), programName)
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o500)
	if err != nil {
		return nil, err
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{from}, make([]byte, largePage))
	if err == nil {
		err = collapse(f)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if err := makeReadOnly(root); err != nil {
		return nil, err
	}
	return os.Open(name)
}

// collapse moves what a file in memory holds into large pages, for which the kernel
// makes room then: while the file is written it takes only what is free. It is as well
// where that cannot be.
func collapse(f *os.File) error {
	st, err := f.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return os.NewSyscallError("mmap", err)
	}
	_ = unix.Madvise(b, unix.MADV_COLLAPSE)
	return os.NewSyscallError("munmap", unix.Munmap(b))
}

// makeReadOnly makes the file system of a folder one that nobody can write to.
func makeReadOnly(root *os.File) error {
	picked, err := unix.Fspick(int(root.Fd()), "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
	if err != nil {
		return os.NewSyscallError("fspick", err)
	}
	defer unix.Close(picked)
	if err := unix.FsconfigSetFlag(picked, "ro"); err != nil {
		return os.NewSyscallError("fsconfig", err)
	}
	return os.NewSyscallError("fsconfig", unix.FsconfigReconfigure(picked))
}

const (
	programName = "berth-engine"
	largePage   = 2 << 20 // bytes
)

// inMemory puts a program in a sealed file, where the kernel has no such file system.
func inMemory(from fs.File) (_ *os.File, err error) {
	fd, err := unix.MemfdCreate(programName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all may be run
		fd, err = unix.MemfdCreate(programName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), programName)
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, struct{ io.Reader }{from}, make([]byte, 1<<20)); err != nil {
		return nil, err
	}
	if err := f.Chmod(0o500); err != nil {
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return nil, os.NewSyscallError("seal memory", err)
	}
	return os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
}

// closeProgram lets go of what engineProgram has loaded.
func (d *Driver) closeProgram() error {
	d.programMu.Lock()
	defer d.programMu.Unlock()
	if d.program == nil {
		return nil
	}
	err := d.program.Close()
	d.program = nil
	return err
}
