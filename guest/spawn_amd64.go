package guest

import (
	"errors"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spawning is one start of a program, for vfork: what the kernel is to make, and
// the calls that the child makes before it is the program. All that the calls
// point to is held here, on the heap, where nothing moves.
type spawning struct {
	how   cloneArgs
	steps [maxSteps]kernelCall
	errno uintptr // of the step that was refused; 0 if none was

	count      int
	mask       uint64 // no signal is held back in the program
	dir, path  *byte
	argv, envv []*byte
	groups     []uint32
}

// kernelCall is a system call.
type kernelCall struct {
	number uintptr
	args   [4]uintptr
}

// maxSteps is enough for all that a launch may ask for.
const maxSteps = 10

// cloneArgs is struct clone_args of clone3(2).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

func vfork(s *spawning) (pid uintptr)

// noSpawn is set once the kernel has shown that it lacks what spawn needs.
var noSpawn atomic.Bool

// spawn is syscall.ForkExec for the plain case, and costs half: the kernel drops
// the signal handlers in one go, where the library takes sixty calls, each of
// which is dear in a sandbox. Without ok nothing has been tried.
func spawn(path string, argv []string, attr *syscall.ProcAttr) (pid int, ok bool, err error) {
	if noSpawn.Load() {
		return 0, false, nil
	}
	s, err := newSpawning(path, argv, attr)
	if err != nil {
		return 0, true, err
	}
	switch pid, err = s.run(); err {
	case syscall.ENOSYS, syscall.EINVAL, syscall.EPERM:
		if pid == 0 { // of clone3 itself
			noSpawn.Store(true)
			return 0, false, nil
		}
	}
	runtime.KeepAlive(attr)
	return pid, true, err
}

func newSpawning(path string, argv []string, attr *syscall.ProcAttr) (s *spawning, err error) {
	s = &spawning{how: cloneArgs{flags: unix.CLONE_VM | unix.CLONE_VFORK | unix.CLONE_CLEAR_SIGHAND, exitSignal: uint64(syscall.SIGCHLD)}}
	var errs [4]error
	s.path, errs[0] = syscall.BytePtrFromString(path)
	s.argv, errs[1] = syscall.SlicePtrFromStrings(argv)
	s.envv, errs[2] = syscall.SlicePtrFromStrings(attr.Env)
	if attr.Dir != "" {
		s.dir, errs[3] = syscall.BytePtrFromString(attr.Dir)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, syscall.EINVAL
	}
	s.step(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&s.mask)), 0, unsafe.Sizeof(s.mask))
	s.step(syscall.SYS_SETSID)
	if who := attr.Sys.Credential; who != nil {
		s.groups = append([]uint32{}, who.Groups...)
		s.step(syscall.SYS_SETGROUPS, uintptr(len(s.groups)), uintptr(unsafe.Pointer(unsafe.SliceData(s.groups))))
		s.step(syscall.SYS_SETGID, uintptr(who.Gid))
		s.step(syscall.SYS_SETUID, uintptr(who.Uid))
	}
	if s.dir != nil {
		s.step(syscall.SYS_CHDIR, uintptr(unsafe.Pointer(s.dir)))
	}
	for i, fd := range attr.Files {
		s.step(syscall.SYS_DUP3, fd, uintptr(i))
	}
	s.step(syscall.SYS_EXECVE, uintptr(unsafe.Pointer(s.path)), uintptr(unsafe.Pointer(&s.argv[0])), uintptr(unsafe.Pointer(&s.envv[0])))
	return s, nil
}

func (s *spawning) step(number uintptr, args ...uintptr) {
	s.steps[s.count].number = number
	copy(s.steps[s.count].args[:], args)
	s.count++
}

// run makes the child, which is gone again if err is set and pid is not 0. No
// signal may come to it before it has let go of the handlers' memory.
func (s *spawning) run() (pid int, err error) {
	all, old := ^uint64(0), new(uint64)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	syscall.ForkLock.Lock()
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(old)), 8, 0, 0)
	got := vfork(s)
	syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(old)), 0, 8, 0, 0)
	syscall.ForkLock.Unlock()
	runtime.KeepAlive(s)
	if pid = int(got); pid < 0 {
		return 0, syscall.Errno(-pid)
	}
	if s.errno == 0 {
		return pid, nil
	}
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			break
		}
	}
	return pid, syscall.Errno(s.errno)
}
