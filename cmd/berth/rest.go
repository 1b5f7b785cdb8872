package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How a server that has become quiet gives memory back.
const (
	restLook  = 15 * time.Second
	restQuiet = 4 << 20  // bytes that may be allocated between two looks
	restWorth = 16 << 20 // bytes allocated since the last rest that make another worth while
	restAgain = 6        // looks after such a one until another: what was open to guests is closed by then
)

// whileServing runs f until end is called, which waits for it.
func whileServing(ctx context.Context, f func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	return func() { cancel(); <-done }
}

// rest gives memory back to the host whenever the server has become quiet after it
// was busy: what the collector keeps for later, and what is mapped of this program
// and is not in use, its start for example. It ends with the context.
func rest(ctx context.Context) {
	look := time.NewTicker(restLook)
	defer look.Stop()
	var last, rested uint64
	again := 0 // looks until then; 0: not
	for {
		select {
		case <-ctx.Done():
			return
		case <-look.C:
		}
		now := allocated()
		quiet, busy := now-last < restQuiet, now-rested > restWorth
		last = now
		again = max(0, again-1)
		if !quiet || !busy && again != 1 {
			continue
		}
		if again = 0; busy {
			again = restAgain + 1
		}
		debug.FreeOSMemory()
		unmapUnused()
		rested = allocated()
	}
}

// allocated is how many bytes of the heap were ever handed out.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// unmapUnused lets go of the pages of this program's file. Those that are used come
// back, from the host's cache, when they are touched.
func unmapUnused() {
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return // it costs memory, and nothing else
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		from, size, ok := programPages(lines.Text(), self)
		if ok {
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, size, syscall.MADV_DONTNEED)
		}
	}
}

// programPages reads a line of /proc/PID/maps: ok says that it is of the program's
// file and nothing of it was ever written.
func programPages(line, program string) (from, size uintptr, ok bool) {
	f := strings.Fields(line)
	if len(f) < 6 || f[5] != program || len(f[1]) != 4 || f[1][1] != '-' || f[1][3] != 'p' {
		return 0, 0, false
	}
	a, b, _ := strings.Cut(f[0], "-")
	begin, err := strconv.ParseUint(a, 16, 64)
	if err != nil {
		return 0, 0, false
	}
	end, err := strconv.ParseUint(b, 16, 64)
	return uintptr(begin), uintptr(end - begin), err == nil && end > begin
}
