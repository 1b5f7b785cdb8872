package image

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

const (
	maxLine  = 400   // bytes of a line of output that is passed on
	keepTail = 12    // lines kept for the error of a command that fails
	maxLog   = 20000 // lines of one command that are passed on
	lockFD   = 100   // the lock's number in the command
)

// command is a program that a build runs.
type command struct {
	argv []string
	env  []string // added to this process's own
	lock *os.File // of the work directory: held open while any child lives

	// enclosed gives the program a process and a mount name space of its own:
	// whatever it starts dies with it, and what it mounts is nowhere else.
	enclosed bool
}

// run runs the program to its end and gives every line of its output to onLine.
// When ctx ends, or this process, the program is killed with its children.
func (c command) run(ctx context.Context, onLine func(string)) error {
	// The signal at the parent's death is tied to the thread that forked.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.enclosed {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWPID
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS
	}
	if c.lock != nil {
		// Out of the way: shells take descriptors of one digit only, and the
		// programs beneath hand theirs to shells by number.
		cmd.ExtraFiles = make([]*os.File, lockFD-2)
		cmd.ExtraFiles[lockFD-3] = c.lock
	}
	// So are those that this process itself has inherited.
	err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS) { // Linux before 5.11
		return fmt.Errorf("hide descriptors: %w", err)
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = in, in
	if err := errors.Join(cmd.Start(), in.Close()); err != nil {
		return fmt.Errorf("run %s: %w", c.argv[0], err)
	}
	// A child that escaped the kill may hold the pipe: do not wait for it.
	stop := context.AfterFunc(ctx, func() { out.SetReadDeadline(time.Now().Add(cmd.WaitDelay)) })
	defer stop()
	tail := readLines(out, onLine)
	err = cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return c.failed(err, tail)
	}
	return nil
}

// failed tells why, by the program's last words.
func (c command) failed(err error, tail []string) error {
	said := strings.Join(tail, "\n")
	err = fmt.Errorf("%s: %w: %s", c.argv[0], err, said)
	if strings.Contains(said, "No space left on device") || strings.Contains(said, "enough free space") {
		return errors.Join(err, syscall.ENOSPC)
	}
	return &sandbox.Error{Kind: sandbox.Internal, Err: err}
}

// readLines gives lines to onLine, cut to maxLine bytes of valid text, and
// returns the last ones. It ends with its reader.
func readLines(r io.Reader, onLine func(string)) (tail []string) {
	in := bufio.NewReaderSize(r, 16<<10)
	for n := 0; ; {
		b, isPrefix, err := in.ReadLine()
		line := printable(b)
		for isPrefix && err == nil {
			_, isPrefix, err = in.ReadLine()
		}
		if line != "" {
			if n++; n <= maxLog {
				onLine(line)
			}
			if len(tail) == keepTail {
				tail = append(tail[:0], tail[1:]...)
			}
			tail = append(tail, line)
		}
		if err != nil {
			return tail
		}
	}
}

// printable is the last state of a terminal line, without control characters.
func printable(b []byte) string {
	s := strings.TrimRight(string(b), "\r ")
	if i := strings.LastIndexByte(s, '\r'); i >= 0 {
		s = s[i+1:]
	}
	if len(s) > maxLine {
		s = s[:maxLine]
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || (r < ' ' && r != '\t') || r == 0x7f {
			return -1
		}
		return r
	}, s)
}
