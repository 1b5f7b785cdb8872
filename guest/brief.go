package guest

import (
	"runtime"
	"syscall"
	"time"
)

// Most commands are over in a few milliseconds. Whoever asked for one waits for its end
// himself, then takes what it wrote: no other goroutine is woken for it, and no thread.

const (
	briefMin = time.Millisecond // the least time that it is worth while to wait so
	pipeSize = 64 << 10         // bytes that a pipe holds
)

// passed follows a process alone for as long as it may be brief; true means that it has come
// to its end, and that all of it is known.
func (p *process) passed() bool {
	limit := p.brief
	if p.timeout > 0 {
		limit = min(limit, p.timeout)
	}
	if limit < briefMin {
		return false
	}
	fds := [streams]int{-1, -1}
	for i, pump := range p.pumps {
		fd, err := descriptor(pump.pipe)
		if err != nil {
			return false
		}
		fds[i] = int(fd)
	}
	k := p.leader.(*program).child
	if !engineAwait(k.pid, limit, fds) {
		return false
	}
	p.kids.reap(k)
	for i, pump := range p.pumps {
		if !pump.drain(func(b []byte) { p.out.write(i, b) }) {
			return false // something that it left running has the pipe too
		}
	}
	p.conclude(time.Now())
	return true
}

// drain carries what waits in the pipe; true means that this was all, for good.
func (p *pump) drain(sink func([]byte)) (ended bool) {
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return false
	}
	buf := pumpBuffers.Get().(*[32 << 10]byte)
	defer pumpBuffers.Put(buf)
	for p.read < pipeSize { // what is left behind may write for ever
		n := 0
		var errno error
		err := raw.Control(func(fd uintptr) {
			for {
				if n, errno = syscall.Read(int(fd), buf[:]); errno != syscall.EINTR {
					return
				}
			}
		})
		if err != nil || errno != nil {
			return false
		}
		p.mu.Lock()
		if n <= 0 {
			p.full = true
			close(p.complete)
			close(p.ended)
			p.mu.Unlock()
			return true
		}
		p.read += int64(n)
		p.mu.Unlock()
		sink(buf[:n])
		p.mu.Lock()
		p.sunk += int64(n)
		p.mu.Unlock()
	}
	return false
}

// tidy lets go of what a process has left that is over, after whoever asked for it has
// been answered.
func (t *table) tidy(p *process) {
	runtime.Gosched()
	for _, pump := range p.pumps {
		pump.pipe.Close()
	}
	t.ready.fill()
}
