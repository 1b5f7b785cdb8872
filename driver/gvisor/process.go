package gvisor

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// process is a process that need not be this one's child. It is told from
// another that gets its number later by the time it started and the boot.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after the machine's boot
	Boot  string `json:"boot"`  // the boot's id
}

// identify reads what tells a live process from all others.
func identify(pid int) (process, error) {
	start, err := startTime(pid)
	if err != nil {
		return process{}, err
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, err
	}
	return process{PID: pid, Start: start, Boot: strings.TrimSpace(string(boot))}, nil
}

// startTime reads field 22 of proc_pid_stat(5). The second field may hold
// anything, so the count begins after its last parenthesis.
func startTime(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	s := string(b)
	fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("process %d: malformed stat", pid)
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// errGone means that a process has ended.
var errGone = errors.New("the process has ended")

// open returns a descriptor that becomes readable when the process ends.
func (p process) open() (*os.File, error) {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil, errGone
	}
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", p.PID, err)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	// Only now is it sure that the number will not pass to another. A process
	// that has ended but was not waited for still has its number.
	now, err := identify(p.PID)
	if err != nil || now != p || readable(fd) {
		f.Close()
		return nil, errGone
	}
	return f, nil
}

// readable reports whether the process behind a pidfd has ended.
func readable(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1
}

// ended waits until the process behind f has ended; it fails when f is closed.
func ended(f *os.File) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return c.Read(func(fd uintptr) bool { return readable(int(fd)) })
}
