package guest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The engine's own calls, which it has for the first process alone. Elsewhere there are
// none of these numbers.
const (
	callSpawn = 1990
	callAwait = 1991
)

// order is a program to be started, as the leader of a session of its own.
type order struct {
	paths, dirs []string // to choose from: of each the first that is there
	argv, env   []string
	files       [3]uintptr          // its 0, 1 and 2
	credential  *syscall.Credential // nil keeps the guest's own
}

// engineOrder is an order as the engine reads it.
type engineOrder struct {
	paths, argv, env, dirs **byte
	groups                 *uint32
	groupCount             uint64
	uid, gid               uint64
	flags                  uint64
	files                  [3]int32
	dir                    uint32 // the engine says which
}

const orderBecomes = 1 // flag: user and groups count

// noEngine is set once the kernel has shown that it is not the engine.
var noEngine atomic.Bool

// engineless, set by the linker, makes a guest that starts programs as it would on any other
// kernel: a test compares what both ways give.
var engineless string

func init() { noEngine.Store(engineless != "") }

// onEngine reports whether the kernel is the engine, which answers to its own numbers.
var onEngine = sync.OnceValue(func() bool {
	if noEngine.Load() {
		return false
	}
	_, _, errno := syscall.RawSyscall6(callAwait, 0, 0, 0, 0, 0, 0) // for no child, and no time
	return errno != syscall.ENOSYS && errno != syscall.EPERM
})

// engineSpawn has the engine start a program: one call in place of a dozen of a child's,
// which each cost a switch, and no second process of the guest's memory. Without ok
// nothing has been tried. dir tells which folder it starts in.
func engineSpawn(o *order) (pid, dir int, ok bool, err error) {
	if noEngine.Load() {
		return 0, 0, false, nil
	}
	e := engineOrder{}
	for _, v := range []struct {
		to   ***byte
		from []string
	}{{&e.paths, o.paths}, {&e.argv, o.argv}, {&e.env, o.env}, {&e.dirs, o.dirs}} {
		all, err := syscall.SlicePtrFromStrings(v.from)
		if err != nil {
			return 0, 0, true, err
		}
		*v.to = unsafe.SliceData(all)
	}
	for i, fd := range o.files {
		e.files[i] = int32(fd)
	}
	if who := o.credential; who != nil {
		e.flags, e.uid, e.gid = orderBecomes, uint64(who.Uid), uint64(who.Gid)
		e.groups, e.groupCount = unsafe.SliceData(who.Groups), uint64(len(who.Groups))
	}
	got, _, errno := syscall.RawSyscall(callSpawn, uintptr(unsafe.Pointer(&e)), 0, 0)
	runtime.KeepAlive(o)
	switch errno {
	case 0:
		return int(got), int(e.dir), true, nil
	case syscall.ENOSYS, syscall.EPERM: // EPERM: of a filter of calls
		noEngine.Store(true)
		return 0, 0, false, nil
	}
	return 0, 0, true, errno
}

// engineAwait waits until a child has ended, which it leaves to be reaped, until one of
// two pipes is half full, or at most so long. It may return early.
func engineAwait(pid int, limit time.Duration, pipes [streams]int) (ended bool) {
	got, _, errno := syscall.Syscall6(callAwait, uintptr(pid), uintptr(limit), uintptr(pipes[stdout]), uintptr(pipes[stderr]), 0, 0)
	return errno == 0 && got == 1
}
