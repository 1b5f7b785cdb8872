package guest

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// openPTY makes a terminal's two ends: ours, which does not block, and the
// program's, which belongs to the user it runs as.
func openPTY(cols, rows int, owner *syscall.Credential) (master, slave *os.File, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("open ptmx", err)
	}
	master = os.NewFile(uintptr(fd), "terminal")
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, nil, os.NewSyscallError("unlock terminal", err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, nil, os.NewSyscallError("name terminal", err)
	}
	if err := setSize(fd, cols, rows); err != nil {
		return nil, nil, err
	}
	// Programs expect an end that blocks: package os would make it one that does not.
	name := "/dev/pts/" + strconv.Itoa(number)
	end, err := unix.Open(name, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, nil, os.NewSyscallError("open "+name, err)
	}
	slave = os.NewFile(uintptr(end), name)
	defer func() {
		if err != nil {
			slave.Close()
		}
	}()
	if owner != nil {
		if err := slave.Chown(int(owner.Uid), int(owner.Gid)); err != nil {
			return nil, nil, err
		}
	}
	// Erasing a character of several bytes is a comfort that not every kernel has.
	if t, err := unix.IoctlGetTermios(end, unix.TCGETS); err == nil {
		t.Iflag |= unix.IUTF8
		_ = unix.IoctlSetTermios(end, unix.TCSETS, t)
	}
	return master, slave, nil
}

// setSize also tells the group in the foreground, with SIGWINCH.
func setSize(fd, cols, rows int) error {
	size := &unix.Winsize{Col: uint16(cols), Row: uint16(rows)}
	return os.NewSyscallError("set size", unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size))
}

// foreground is the process group that a session's terminal talks to; without
// one it is the leader's own.
func foreground(leader int) int {
	line, err := os.ReadFile("/proc/" + strconv.Itoa(leader) + "/stat")
	if err != nil {
		return leader
	}
	// "pid (name) state parent group session tty foreground …"
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	if len(fields) < 6 {
		return leader
	}
	group, err := strconv.Atoi(string(fields[5]))
	if err != nil || group <= 1 {
		return leader
	}
	return group
}

// signalForeground sends to the group in the foreground of a leader's terminal;
// false means that the leader has ended.
func (c *children) signalForeground(k *child, s syscall.Signal) (bool, error) {
	c.lock.RLock()
	defer c.lock.RUnlock()
	select {
	case <-k.done:
		return false, nil
	default:
	}
	if err := syscall.Kill(-foreground(k.pid), s); err != nil && err != syscall.ESRCH {
		return true, err
	}
	return true, nil
}
