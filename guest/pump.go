package guest

import (
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pump carries what is written into a pipe to a sink, until no process holds
// the pipe's other end any more.
//
// A process that has ended may have left children that hold the pipe open for
// ever. Its own output is complete as soon as all that the pipe held at its end
// has been carried, so leaderEnded counts that once, under the lock that a read
// and its count share.
type pump struct {
	pipe *os.File

	mu     sync.Mutex
	read   int64 // bytes taken from the pipe
	sunk   int64 // bytes given to the sink
	target int64 // bytes that complete the leader's output; -1 while it lives
	full   bool  // complete is closed

	complete chan struct{} // closed when target is reached, or at the end
	ended    chan struct{} // closed at the end
}

// pumpBuffers holds the bytes between a pipe and its sink; only pumps that have
// something to carry hold one.
var pumpBuffers = sync.Pool{New: func() any { return new([32 << 10]byte) }}

func newPump(pipe *os.File) *pump {
	return &pump{pipe: pipe, target: -1, complete: make(chan struct{}), ended: make(chan struct{})}
}

// run carries until the end of the file, or until the pipe is closed.
func (p *pump) run(sink func([]byte)) {
	defer p.end()
	raw, err := p.pipe.SyscallConn()
	if err != nil {
		return
	}
	for {
		var buf *[32 << 10]byte
		n := 0
		err := raw.Read(func(fd uintptr) bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			buf = pumpBuffers.Get().(*[32 << 10]byte)
			var err error
			for {
				n, err = syscall.Read(int(fd), buf[:])
				if err != syscall.EINTR {
					break
				}
			}
			if err == syscall.EAGAIN {
				pumpBuffers.Put(buf)
				return false
			}
			p.read += int64(max(n, 0))
			return true
		})
		if err != nil || n <= 0 {
			return
		}
		sink(buf[:n])
		pumpBuffers.Put(buf)
		p.mu.Lock()
		p.sunk += int64(n)
		p.settle()
		p.mu.Unlock()
	}
}

// leaderEnded marks where the leader's output ends.
func (p *pump) leaderEnded() {
	held := 0
	raw, err := p.pipe.SyscallConn()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full { // the pipe has ended already
		return
	}
	if err == nil {
		raw.Control(func(fd uintptr) { held, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	p.target = p.read + int64(held)
	p.settle()
}

// settle closes complete once it is true.
func (p *pump) settle() {
	if !p.full && p.target >= 0 && p.sunk >= p.target {
		p.full = true
		close(p.complete)
	}
}

// end lets those go on first who wait for it: letting go of the pipe takes its time.
func (p *pump) end() {
	p.mu.Lock()
	if !p.full {
		p.full = true
		close(p.complete)
	}
	close(p.ended)
	p.mu.Unlock()
	runtime.Gosched()
	p.pipe.Close()
}
