package netgw

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/waiter"
)

// A connection's bytes go from a socket of the host's right into the stack's memory
// and back: one copy less each way than through a buffer, and an idle connection
// holds none.

// maxDirect bounds what is moved at once, so that others of the link come through.
const maxDirect = 256 << 10

// errNoBytes is the end of a read that the kernel had promised more to.
var errNoBytes = errors.New("the socket gave fewer bytes than it said")

// socketOf is a connection's socket, if it is one of the host's.
func socketOf(c net.Conn) (syscall.RawConn, bool) {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil, false
	}
	raw, err := t.SyscallConn()
	return raw, err == nil
}

// arriving are the bytes that a socket holds already, as the stack takes them.
type arriving struct {
	fd   int
	left int
}

func (a *arriving) Len() int { return a.left }

// Read implements tcpip.Payloader.
func (a *arriving) Read(b []byte) (int, error) {
	if a.left == 0 {
		return 0, io.EOF
	}
	if len(b) == 0 {
		return 0, nil
	}
	n, err := ignoringEINTR(func() (int, error) { return unix.Read(a.fd, b[:min(len(b), a.left)]) })
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, errNoBytes
	}
	a.left -= n
	return n, nil
}

func ignoringEINTR(f func() (int, error)) (int, error) {
	for {
		n, err := f()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// waiting looks what a socket has to read: a count, its end, or nothing yet.
func waiting(fd int) (n int, err error) {
	if n, err = unix.IoctlGetInt(fd, unix.TIOCINQ); err != nil || n > 0 {
		return n, err
	}
	var b [1]byte
	n, err = ignoringEINTR(func() (int, error) {
		n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return n, err
	})
	if n == 0 && err == nil {
		err = io.EOF
	}
	return n, err
}

// take passes what a socket gives to the sandbox until its end.
func (c *guestConn) take(from syscall.RawConn, count func(int)) (total int64, err error) {
	room := c.watch(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	defer room.end()
	for {
		var n int64
		var end error
		var full tcpip.Error
		err := from.Read(func(fd uintptr) bool {
			held, err := waiting(int(fd))
			if errors.Is(err, unix.EAGAIN) {
				return false
			}
			if end = err; err == nil {
				n, full = c.ep.Write(&arriving{int(fd), min(held, maxDirect)}, tcpip.WriteOptions{})
			}
			return true
		})
		if n > 0 {
			count(int(n))
			total += n
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return total, errStopped
		case err != nil:
			return total, err
		case errors.Is(end, io.EOF):
			return total, nil
		case end != nil:
			return total, end
		}
		switch full.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			<-room.events
		default:
			return total, errors.New(full.String())
		}
	}
}

// give passes what the sandbox sends to a socket until its end.
func (c *guestConn) give(to syscall.RawConn, count func(int)) (total int64, err error) {
	more := c.watch(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	defer more.end()
	for {
		var n int
		var empty tcpip.Error
		var out leaving
		err := to.Write(func(fd uintptr) bool {
			out = leaving{fd: int(fd)}
			res, e := c.ep.Read(&out, tcpip.ReadOptions{})
			n, empty = n+res.Count, e
			return out.err == nil || !errors.Is(out.err, unix.EAGAIN)
		})
		if n > 0 {
			count(n)
			total += int64(n)
		}
		switch {
		case err != nil:
			return total, err
		case out.err != nil:
			return total, out.err
		}
		switch empty.(type) {
		case nil:
		case *tcpip.ErrWouldBlock:
			<-more.events
		case *tcpip.ErrClosedForReceive:
			return total, nil
		default:
			return total, errors.New(empty.String())
		}
	}
}

// leaving writes to a socket as much as that takes at once.
type leaving struct {
	fd   int
	done int
	err  error
}

// errEnough ends a read at maxDirect.
var errEnough = errors.New("enough at once")

// Write implements io.Writer.
func (l *leaving) Write(b []byte) (n int, err error) {
	if l.err != nil {
		return 0, l.err
	}
	if l.done >= maxDirect {
		return 0, errEnough
	}
	for n < len(b) {
		m, err := ignoringEINTR(func() (int, error) { return unix.Write(l.fd, b[n:]) })
		if err != nil {
			l.err = err
			return n, err
		}
		n, l.done = n+m, l.done+m
	}
	return n, nil
}

// watch tells of an endpoint's events, from now on.
func (c *guestConn) watch(mask waiter.EventMask) *watch {
	w := &watch{queue: c.queue}
	w.entry, w.events = waiter.NewChannelEntry(mask)
	c.queue.EventRegister(&w.entry)
	return w
}

type watch struct {
	queue  *waiter.Queue
	entry  waiter.Entry
	events chan struct{}
}

func (w *watch) end() { w.queue.EventUnregister(&w.entry) }
