package guest

import (
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// children starts processes and learns how they ended.
//
// As PID 1 the guest must reap orphans too, so whoever comes first to a child that has
// ended hands its status to whom it belongs. The lock makes that exact: no child is
// reaped while another is being started or signalled, so that a number is never taken
// for the process that had it before. Package os/exec is not used: it knows its own
// children alone.
type children struct {
	lock sync.RWMutex // held for reading to start or signal, for writing to reap
	init bool
	born chan struct{} // told when there may be an orphan to wait for
	soon *time.Timer   // that tells it
	ends *deaths       // nil where there is no such thing
	wg   sync.WaitGroup

	mu   sync.Mutex
	live map[int]*child
}

// child is one started process; the leader of its own session and group.
type child struct {
	pid    int
	mark   string        // the variable that tells what it starts, as NAME=value; "" for none
	done   chan struct{} // closed when it has been reaped
	status syscall.WaitStatus
	used   syscall.Rusage // with its children's that it waited for
}

// newChildren returns the children of this process and what ends the reaping, once
// all children have ended.
func newChildren(init bool) (*children, func()) {
	c := &children{init: init, born: make(chan struct{}, 1), live: map[int]*child{}}
	c.soon = time.AfterFunc(time.Hour, func() { poke(c.born) })
	c.soon.Stop()
	stop := make(chan struct{})
	ends := openDeaths()
	if c.ends = ends; ends != nil {
		c.wg.Go(func() { ends.run(c.reap) })
	}
	if init {
		hush()
		c.wg.Go(func() { c.reapOrphans(stop) })
	}
	return c, func() {
		c.soon.Stop()
		close(stop)
		ends.close()
		c.wg.Wait()
	}
}

// hush lets the kernel send no signal when a child ends: it would interrupt some
// thread each time, for nothing.
func hush() {
	var action [4]uint64 // struct sigaction: SIG_DFL, without flags
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGCHLD), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// orphanTime is how long an orphan that has ended may stay: to wait for orphans
// occupies a thread, so it is not done beside programs that end soon.
const orphanTime = 100 * time.Millisecond

// reapOrphans waits for whatever child ends, until there is none and stop is closed.
func (c *children) reapOrphans(stop <-chan struct{}) {
	for {
		select {
		case <-c.born:
		case <-stop:
			return
		}
		for c.reapAll() {
			awaitAny()
			c.reapAll()
			select {
			case <-time.After(orphanTime):
			case <-stop:
			}
		}
	}
}

// awaitAny returns when a child has ended, or when there is none.
func awaitAny() {
	for {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			return
		}
	}
}

// start runs a program. It returns once the program has been executed, or could
// not be.
func (c *children) start(path string, argv []string, attr *syscall.ProcAttr) (*child, error) {
	c.lock.RLock()
	defer c.lock.RUnlock()
	end := -1
	attr.Sys.PidFD = &end
	pid, ok, err := spawn(path, argv, attr)
	if !ok {
		pid, err = syscall.ForkExec(path, argv, attr)
	}
	if err != nil {
		return nil, err
	}
	k := &child{pid: pid, mark: markIn(attr.Env), done: make(chan struct{})}
	c.mu.Lock()
	c.live[pid] = k
	c.mu.Unlock()
	if !c.ends.watch(end, k) {
		go c.await(k)
	}
	if c.init {
		c.soon.Reset(orphanTime)
	}
	return k, nil
}

// signal sends to k's whole group; false means that k has ended.
func (c *children) signal(k *child, s syscall.Signal) (bool, error) {
	c.lock.RLock()
	defer c.lock.RUnlock()
	if k.ended() {
		return false, nil
	}
	if err := syscall.Kill(-k.pid, s); err != nil && err != syscall.ESRCH {
		return true, err
	}
	return true, nil
}

// ended reports whether it has been reaped.
func (k *child) ended() bool {
	select {
	case <-k.done:
		return true
	default:
		return false
	}
}

// reapAll collects every child that has ended, and reports whether others live.
func (c *children) reapAll() bool {
	for {
		c.lock.Lock()
		pid, err := c.collect(-1)
		c.lock.Unlock()
		if pid <= 0 && err != syscall.EINTR {
			return err != syscall.ECHILD
		}
		runtime.Gosched() // whoever waited for this end goes on before the next is looked for
	}
}

// reap collects a child that is said to have ended. Where somebody else must hear of
// that first, as who traces it must, it is waited for.
func (c *children) reap(k *child) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if k.ended() {
		return
	}
	if pid, _ := c.collect(k.pid); pid != k.pid {
		go c.await(k)
		return
	}
	if c.init {
		if _, err := c.collect(-1); err == syscall.ECHILD {
			c.soon.Stop() // it has left no orphan either
		}
	}
}

// await waits for one child with a thread of its own.
func (c *children) await(k *child) {
	for {
		var info unix.Siginfo
		if err := unix.Waitid(unix.P_PID, k.pid, &info, unix.WEXITED|unix.WNOWAIT, nil); err != unix.EINTR {
			break
		}
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	for !k.ended() {
		if _, err := c.collect(k.pid); err != nil && err != syscall.EINTR {
			return
		}
	}
}

// collect reaps a child that has ended, that of a number or any, and tells its end; an
// orphan's is nobody's concern. It is called with the lock held, and does not wait.
func (c *children) collect(which int) (pid int, err error) {
	var status syscall.WaitStatus
	var used syscall.Rusage
	got, _, errno := syscall.RawSyscall6(syscall.SYS_WAIT4, uintptr(which), uintptr(unsafe.Pointer(&status)), syscall.WNOHANG, uintptr(unsafe.Pointer(&used)), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	if pid = int(got); pid == 0 {
		return 0, nil
	}
	c.mu.Lock()
	k := c.live[pid]
	delete(c.live, pid)
	c.mu.Unlock()
	if k != nil {
		k.status, k.used = status, used
		close(k.done)
	}
	return pid, nil
}
