package guest

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// children starts processes and learns how they ended.
//
// As PID 1 the guest must reap orphans too, so one reaper owns wait4 and hands
// each status to whom it belongs. The lock makes that exact: no child is reaped
// while another is being started or signalled, so that a number is never taken
// for the process that had it before. Package os/exec is not used: it would
// wait for the same children, and would want pidfds.
type children struct {
	lock sync.RWMutex // held for reading to start or signal, for writing to reap
	init bool

	mu   sync.Mutex
	live map[int]*child
}

// child is one started process; the leader of its own session and group.
type child struct {
	pid    int
	done   chan struct{} // closed when it has been reaped
	status syscall.WaitStatus
	used   syscall.Rusage // with its children's that it waited for
}

// newChildren returns the children of this process and what ends the reaping.
func newChildren(init bool) (*children, func()) {
	c := &children{init: init, live: map[int]*child{}}
	if !init {
		return c, func() {}
	}
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			c.reapAll()
			select {
			case <-ended:
			case <-stop:
				return
			}
		}
	}()
	return c, func() {
		signal.Stop(ended)
		close(stop)
		<-stopped
	}
}

// start runs a program. It returns once the program has been executed, or could
// not be.
func (c *children) start(path string, argv []string, attr *syscall.ProcAttr) (*child, error) {
	c.lock.RLock()
	defer c.lock.RUnlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	k := &child{pid: pid, done: make(chan struct{})}
	c.mu.Lock()
	c.live[pid] = k
	c.mu.Unlock()
	if !c.init {
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
