package guest

import (
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// children starts processes and learns how they ended.
//
// As PID 1 the guest must reap orphans too, so one reaper waits for whatever child
// ends and hands each status to whom it belongs. The lock makes that exact: no
// child is reaped while another is being started or signalled, so that a number is
// never taken for the process that had it before. Package os/exec is not used: it
// would wait for the same children, and would want pidfds.
type children struct {
	lock sync.RWMutex // held for reading to start or signal, for writing to reap
	init bool
	born chan struct{} // told when there is a child that the reaper may wait for

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
	if !init {
		return c, func() {}
	}
	hush()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for c.awaitAny(stop) {
			c.reapAll()
		}
	}()
	return c, func() {
		close(stop)
		<-stopped
	}
}

// hush lets the kernel send no signal when a child ends: it would interrupt some
// thread each time, for nothing.
func hush() {
	var action [4]uint64 // struct sigaction: SIG_DFL, without flags
	syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, uintptr(syscall.SIGCHLD), uintptr(unsafe.Pointer(&action)), 0, 8, 0, 0)
}

// awaitAny returns true when a child has ended, false when there is none and stop
// is closed.
func (c *children) awaitAny(stop <-chan struct{}) bool {
	for {
		var info unix.Siginfo
		switch err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil); err {
		case nil:
			return true
		case unix.EINTR:
			continue
		}
		select {
		case <-c.born:
		case <-stop:
			return false
		}
	}
}

// start runs a program. It returns once the program has been executed, or could
// not be.
func (c *children) start(path string, argv []string, attr *syscall.ProcAttr) (*child, error) {
	c.lock.RLock()
	defer c.lock.RUnlock()
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
	if c.init {
		poke(c.born)
	} else {
		go c.await(pid)
	}
	return k, nil
}

// signal sends to k's whole group; false means that k has ended.
func (c *children) signal(k *child, s syscall.Signal) (bool, error) {
	c.lock.RLock()
	defer c.lock.RUnlock()
	select {
	case <-k.done:
		return false, nil
	default:
	}
	if err := syscall.Kill(-k.pid, s); err != nil && err != syscall.ESRCH {
		return true, err
	}
	return true, nil
}

// reapAll collects every child that has ended.
func (c *children) reapAll() {
	for {
		c.lock.Lock()
		var status syscall.WaitStatus
		var used syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &used)
		if pid > 0 {
			c.settle(pid, status, used)
		}
		c.lock.Unlock()
		if pid <= 0 && err != syscall.EINTR {
			return
		}
		runtime.Gosched() // whoever waited for this end goes on before the next is looked for
	}
}

// await collects one child; it is used where the process has children that are
// not the guest's.
func (c *children) await(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	c.lock.Lock()
	defer c.lock.Unlock()
	for {
		var status syscall.WaitStatus
		var used syscall.Rusage
		_, err := syscall.Wait4(pid, &status, 0, &used)
		if err == syscall.EINTR {
			continue
		}
		c.settle(pid, status, used)
		return
	}
}

// settle tells a child's end; an orphan's is nobody's concern.
func (c *children) settle(pid int, status syscall.WaitStatus, used syscall.Rusage) {
	c.mu.Lock()
	k := c.live[pid]
	delete(c.live, pid)
	c.mu.Unlock()
	if k != nil {
		k.status, k.used = status, used
		close(k.done)
	}
}
