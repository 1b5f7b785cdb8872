package guest

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Calls that cannot wait are made without a word to the runtime: after each that it is
// told of, its monitor looks every few microseconds whether the call is over. In a
// sandbox those looks cost more than the calls.

// readNow reads what there is from a descriptor that does not block.
func readNow(fd uintptr, b []byte) (n int, err error) {
	for n, err = quietRead(fd, b); err == syscall.EINTR; n, err = quietRead(fd, b) {
	}
	return n, err
}

// writeNow writes what there is room for.
func writeNow(fd uintptr, b []byte) (n int, err error) {
	for n, err = quietWrite(fd, b); err == syscall.EINTR; n, err = quietWrite(fd, b) {
	}
	return n, err
}

// heldIn is how many bytes wait in a pipe.
func heldIn(fd uintptr) int {
	var n int32
	syscall.RawSyscall(syscall.SYS_IOCTL, fd, unix.TIOCINQ, uintptr(unsafe.Pointer(&n)))
	return int(n)
}

// closeNow closes a descriptor of a pipe, which is not waited for.
func closeNow(fd int) { syscall.RawSyscall(syscall.SYS_CLOSE, uintptr(fd), 0, 0) }

// quietConn reads and writes a connection so.
type quietConn struct {
	net.Conn
	raw syscall.RawConn
}

// quiet gives c as it is if it has no descriptor.
func quiet(c net.Conn) net.Conn {
	s, ok := c.(syscall.Conn)
	if !ok {
		return c
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return c
	}
	return &quietConn{c, raw}
}

// Read implements net.Conn.
func (c *quietConn) Read(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, nil
	}
	rawErr := c.raw.Read(func(fd uintptr) bool {
		n, err = readNow(fd, b)
		return err != syscall.EAGAIN
	})
	switch {
	case rawErr != nil:
		return 0, rawErr
	case err != nil:
		return 0, c.failed("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (c *quietConn) Write(b []byte) (done int, err error) {
	rawErr := c.raw.Write(func(fd uintptr) bool {
		for done < len(b) {
			var n int
			if n, err = writeNow(fd, b[done:]); err != nil {
				return err != syscall.EAGAIN
			}
			done += n
		}
		return true
	})
	switch {
	case rawErr != nil:
		return done, rawErr
	case err != nil:
		return done, c.failed("write", err)
	}
	return done, nil
}

func (c *quietConn) failed(op string, err error) error {
	return &net.OpError{Op: op, Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

// statNow looks at what a path leads to.
func statNow(path string, st *syscall.Stat_t) error {
	from := unix.AT_FDCWD
	p, err := syscall.BytePtrFromString(path)
	if err != nil {
		return err
	}
	if _, _, errno := syscall.RawSyscall6(unix.SYS_NEWFSTATAT, uintptr(from), uintptr(unsafe.Pointer(p)), uintptr(unsafe.Pointer(st)), 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
