package guest

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipe is a pipe between the guest and a process.
type pipe struct {
	ours   *os.File // does not block
	theirs int      // blocks, as programs expect
}

func openPipe(childWrites bool) (p pipe, err error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC|syscall.O_NONBLOCK); err != nil {
		return p, os.NewSyscallError("pipe2", err)
	}
	mine, theirs := fds[0], fds[1]
	if !childWrites {
		mine, theirs = fds[1], fds[0]
	}
	p = pipe{os.NewFile(uintptr(mine), "pipe"), theirs}
	if _, err := unix.FcntlInt(uintptr(theirs), unix.F_SETFL, 0); err != nil {
		p.close()
		return p, os.NewSyscallError("set blocking", err)
	}
	return p, nil
}

func (p pipe) close() {
	p.ours.Close()
	syscall.Close(p.theirs)
}

// spares is pipes that lie ready for what the next process writes: making them takes a
// tenth of what it takes to start one.
type spares struct {
	mu     sync.Mutex
	pipes  []pipe // at most one for each stream
	closed bool
}

// take gives one that lies ready, if any does. A nil *spares has none.
func (s *spares) take() (pipe, bool) {
	if s == nil {
		return pipe{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.pipes)
	if n == 0 {
		return pipe{}, false
	}
	p := s.pipes[n-1]
	s.pipes = s.pipes[:n-1]
	return p, true
}

// fill makes what is missing. Without descriptors to spare none are kept: who needs one
// makes it, and says so if it cannot.
func (s *spares) fill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.pipes) < streams && !s.closed {
		p, err := openPipe(true)
		if err != nil {
			return
		}
		s.pipes = append(s.pipes, p)
	}
}

// close lets go of them all, for good.
func (s *spares) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pipes {
		p.close()
	}
	s.pipes, s.closed = nil, true
}
