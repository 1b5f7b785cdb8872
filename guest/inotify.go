package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inotify is one queue of the kernel's. Reading is for one goroutine; close may
// come from any.
type inotify struct {
	f    *os.File
	conn syscall.RawConn
}

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "inotify")
	conn, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &inotify{f, conn}, nil
}

func (n *inotify) close() error { return n.f.Close() }

// add watches a folder of files under its name.
func (n *inotify) add(files tree, name string, mask uint32) (wd int, err error) {
	if cerr := n.conn.Control(func(fd uintptr) { wd, err = files.watch(int(fd), name, mask) }); cerr != nil {
		return 0, cerr
	}
	return wd, err
}

// drop ends a watch; one that has ended by itself is no error.
func (n *inotify) drop(wd int) {
	_ = n.conn.Control(func(fd uintptr) { _, _ = unix.InotifyRmWatch(int(fd), uint32(wd)) })
}

// tryRead reads what is queued; 0 bytes mean that nothing is.
func (n *inotify) tryRead(buf []byte) (got int, err error) {
	rerr := n.conn.Read(func(fd uintptr) bool {
		got, err = unix.Read(int(fd), buf)
		return true
	})
	return noticeCount(got, errors.Join(rerr, err))
}

// waitRead waits for something until a time, the zero one for ever. 0 bytes mean
// that the time has come.
func (n *inotify) waitRead(buf []byte, until time.Time) (got int, err error) {
	if err := n.f.SetReadDeadline(until); err != nil {
		return 0, err
	}
	rerr := n.conn.Read(func(fd uintptr) bool {
		got, err = unix.Read(int(fd), buf)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err := n.f.SetReadDeadline(time.Time{}); err != nil {
		return 0, err
	}
	if errors.Is(rerr, os.ErrDeadlineExceeded) {
		return 0, nil
	}
	return noticeCount(got, errors.Join(rerr, err))
}

// noticeCount makes of "nothing now" and "interrupted" a read of nothing.
func noticeCount(got int, err error) (int, error) {
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil
	}
	return max(got, 0), err
}

// notice is one event of the kernel's.
type notice struct {
	wd     int
	mask   uint32
	cookie uint32 // the same in both halves of a rename
	name   string // of the entry; "" means the folder itself
}

// parseNotices reads what the kernel wrote; a part of a notice at the end is
// left out.
func parseNotices(b []byte) []notice {
	var all []notice
	for len(b) >= unix.SizeofInotifyEvent {
		size := binary.NativeEndian.Uint32(b[12:])
		rest := b[unix.SizeofInotifyEvent:]
		if uint64(size) > uint64(len(rest)) {
			break
		}
		name, _, _ := bytes.Cut(rest[:size], []byte{0})
		all = append(all, notice{wd: int(int32(binary.NativeEndian.Uint32(b))), mask: binary.NativeEndian.Uint32(b[4:]),
			cookie: binary.NativeEndian.Uint32(b[8:]), name: string(name)})
		b = rest[size:]
	}
	return all
}
