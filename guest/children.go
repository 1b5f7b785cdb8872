package guest

import (
	"math"
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
	pid, ok, err := 0, false, error(nil)
	if simple(attr) {
		pid, _, ok, err = engineSpawn(&order{paths: []string{path}, dirs: some(attr.Dir), argv: argv, env: attr.Env,
			files: [3]uintptr(attr.Files), credential: attr.Sys.Credential})
		if !ok {
			pid, ok, err = spawn(path, argv, attr)
		}
	}
	if !ok {
		pid, err = syscall.ForkExec(path, argv, attr)
	}
	if err != nil {
		return nil, err
	}
	k := c.know(pid, attr.Env)
	c.expect(pid)
	return k, nil
}

// startFirst starts a program where the engine does it. The reaper does not look for its
// end before expect is called. Without ok nothing has been tried.
func (c *children) startFirst(o *order) (k *child, dir int, ok bool, err error) {
	if !c.init {
		return nil, 0, false, nil
	}
	c.lock.RLock()
	defer c.lock.RUnlock()
	pid, dir, ok, err := engineSpawn(o)
	if !ok || err != nil {
		return nil, 0, ok, err
	}
	return c.know(pid, o.env), dir, true, nil
}

// know notes a child that has been started.
func (c *children) know(pid int, env []string) *child {
	k := &child{pid: pid, mark: markIn(env), done: make(chan struct{})}
	c.mu.Lock()
	c.live[pid] = k
	c.mu.Unlock()
	return k
}

// expect has a child waited for.
func (c *children) expect(pid int) {
	if c.init {
		poke(c.born)
	} else {
		go c.await(pid)
	}
}

// some is a list of s, or of nothing.
func some(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// simple reports whether a start asks for nothing but a session of its own and three
// files, none of which a later step would take away.
func simple(attr *syscall.ProcAttr) bool {
	sys := attr.Sys
	if sys == nil || !sys.Setsid || sys.Setctty || sys.Credential != nil && sys.Credential.NoSetGroups || len(attr.Files) != 3 {
		return false
	}
	for _, fd := range attr.Files {
		if fd < 3 || fd > math.MaxInt32 {
			return false
		}
	}
	return true
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

// reap collects a child that has ended, unless somebody else has.
func (c *children) reap(k *child) {
	c.lock.Lock()
	var status syscall.WaitStatus
	var used syscall.Rusage
	pid, _ := syscall.Wait4(k.pid, &status, syscall.WNOHANG, &used)
	if pid == k.pid {
		c.settle(pid, status, used)
	}
	c.lock.Unlock()
	if pid != k.pid {
		c.expect(k.pid)
	}
	<-k.done
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
