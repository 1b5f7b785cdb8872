package guest

import (
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// deaths tells when children have ended, by descriptors of them in one queue: the
// thread that waits for everything else hears of that too.
type deaths struct {
	queue *os.File // of epoll(7)
	raw   syscall.RawConn

	mu      sync.Mutex
	watched map[int32]*child // by descriptor
}

// openDeaths gives nil where the kernel lacks what it takes.
func openDeaths() *deaths {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil
	}
	d := &deaths{queue: os.NewFile(uintptr(fd), "epoll"), watched: map[int32]*child{}}
	if d.raw, err = d.queue.SyscallConn(); err != nil {
		d.queue.Close()
		return nil
	}
	return d
}

// watch takes over the descriptor of a child. False: it cannot be watched.
func (d *deaths) watch(fd int, k *child) bool {
	if fd < 0 {
		return false
	}
	if d == nil {
		unix.Close(fd)
		return false
	}
	d.mu.Lock()
	d.watched[int32(fd)] = k
	d.mu.Unlock()
	failed := syscall.Errno(0)
	err := d.raw.Control(func(queue uintptr) {
		// Once: a program that is just being started may hold the descriptor a moment
		// longer than this one.
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLONESHOT, Fd: int32(fd)}
		_, _, failed = syscall.RawSyscall6(syscall.SYS_EPOLL_CTL, queue, unix.EPOLL_CTL_ADD, uintptr(fd), uintptr(unsafe.Pointer(&event)), 0, 0)
	})
	if err == nil && failed == 0 {
		return true
	}
	d.forget(int32(fd))
	return false
}

// forget closes a descriptor.
func (d *deaths) forget(fd int32) {
	d.mu.Lock()
	_, ours := d.watched[fd]
	delete(d.watched, fd)
	d.mu.Unlock()
	if ours {
		closeNow(int(fd))
	}
}

// run calls ended for each child that has, until the queue is closed.
func (d *deaths) run(ended func(*child)) {
	var events [16]unix.EpollEvent
	for {
		n := 0
		err := d.raw.Read(func(queue uintptr) bool {
			n = endedIn(queue, events[:])
			return n != 0
		})
		if err != nil || n < 0 {
			return
		}
		for _, e := range events[:n] {
			d.mu.Lock()
			k := d.watched[e.Fd]
			d.mu.Unlock()
			if k != nil {
				ended(k)
			}
		}
		runtime.Gosched() // who waited for these ends goes on first
		for _, e := range events[:n] {
			d.forget(e.Fd)
		}
	}
}

func (d *deaths) close() {
	if d != nil {
		d.queue.Close()
	}
}

// endedIn asks a queue what has ended, without waiting; -1: there is no queue any more.
func endedIn(queue uintptr, events []unix.EpollEvent) int {
	for {
		n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, queue, uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 8)
		switch errno {
		case 0:
			return int(n)
		case syscall.EINTR:
			continue
		}
		return -1
	}
}
