package gvisor

import (
	"errors"
	"fmt"
	"io"
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

func (d *Driver) loadProgram() (_ *os.File, err error) {
	from, err := d.engine()
	if err != nil {
		return nil, err
	}
	defer from.Close()
	// What a process that is being started has open for writing cannot be run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := unix.MemfdCreate("berth-engine", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3 all may be run
		fd, err = unix.MemfdCreate("berth-engine", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "berth-engine")
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
