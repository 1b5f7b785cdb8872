package guest

import (
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// linger is how long an exit waits for output of what the process left running.
const linger = 100 * time.Millisecond

// process is one process tree that the host started. Its fields are set before
// anyone else sees it, but for those that say how it ended.
type process struct {
	id, name string
	session  string // whose command it is, or ""
	seq      int    // ids count up
	plan     *plan
	started  time.Time
	timeout  time.Duration
	detach   bool

	forgotten bool // guarded by the table's lock

	kids   *children
	leader leader
	out    *output
	in     *input // nil without standard input
	pumps  []*pump

	brief    time.Duration // whoever starts it waits so long for its end
	alone    bool          // the reaper does not wait for it
	timedOut atomic.Bool
	loose    atomic.Bool   // it outlives its stream, detached or not: its machine was copied
	done     chan struct{} // closed when the exit is known and all output kept

	mu    sync.Mutex
	ended time.Time
	exit  *guestv1.Exit
}

// leader is what a process is the tree of. Its end is the process's.
type leader interface {
	number() int                                 // of the process, inside; 0 while it has none
	over() <-chan struct{}                       // closed when it has ended
	how() *guestv1.Exit                          // it ended; asked after that
	signal(syscall.Signal) (alive bool, _ error) // to all of it
	kill()                                       // all that descends from it too

	// usage is what it uses, of a process table; nil if that is not known.
	usage(all []processStat) *guestv1.ProcessUsage
}

// stdio is the ends of the pipes of one process: ours and the child's.
type stdio struct {
	in     *os.File
	out    [streams]*os.File
	fds    [3]uintptr // the child's, as its 0, 1 and 2
	childs []int      // that were made for it
	ours   []*os.File
}

// openStdio makes what the process reads and writes.
func openStdio(stdin, merge bool, ready *spares) (s *stdio, err error) {
	s = &stdio{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if stdin {
		if s.in, err = s.pipe(0, false, nil); err != nil {
			return s, err
		}
	} else if s.fds[0], err = nothing.open(); err != nil {
		return s, err
	}
	if s.out[stdout], err = s.pipe(1, true, ready); err != nil || merge {
		s.fds[2] = s.fds[1]
		return s, err
	}
	s.out[stderr], err = s.pipe(2, true, ready)
	return s, err
}

// pipe makes the child's descriptor fd, or takes it of what lies ready, and returns our
// end.
func (s *stdio) pipe(fd int, childWrites bool, ready *spares) (*os.File, error) {
	p, ok := ready.take()
	if !ok {
		var err error
		if p, err = openPipe(childWrites); err != nil {
			return nil, err
		}
	}
	s.childs = append(s.childs, p.theirs)
	s.fds[fd] = uintptr(p.theirs)
	s.ours = append(s.ours, p.ours)
	return p.ours, nil
}

// handOver closes the child's ends, once it has them.
func (s *stdio) handOver() {
	for _, fd := range s.childs {
		syscall.Close(fd)
	}
	s.childs = nil
}

func (s *stdio) close() {
	s.handOver()
	for _, f := range s.ours {
		f.Close()
	}
}

// nothing is what processes without input read: one descriptor for all of them.
var nothing null

type null struct {
	mu     sync.Mutex
	fd     int
	opened bool
}

func (n *null) open() (uintptr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.opened {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, &os.PathError{Op: "open", Path: os.DevNull, Err: err}
		}
		n.fd, n.opened = fd, true
	}
	return uintptr(n.fd), nil
}

// launch starts the program, of an outline once look has settled it. The process's
// goroutines are not running yet.
func (p *process) launch(stdin, merge bool, ready *spares, look func(*plan) error) error {
	s, err := openStdio(stdin, merge, ready)
	if err != nil {
		return fromOS(err)
	}
	k, err := p.startProgram(s.fds, look)
	s.handOver()
	if err != nil {
		s.close()
		return err
	}
	p.leader, p.started = &program{p.kids, k}, time.Now()
	if stdin {
		p.in = newInput(s.in)
	}
	for _, f := range s.out {
		if f != nil {
			p.pumps = append(p.pumps, newPump(f))
		}
	}
	return nil
}

// startProgram has the engine find and start the program, if it can do both at once. What
// it refuses is looked at and tried again, so that the refusal says what is wrong.
func (p *process) startProgram(fds [3]uintptr, look func(*plan) error) (*child, error) {
	if o := p.plan.order(); o != nil {
		o.files = fds
		if k, dir, ok, err := p.kids.startFirst(o); ok && err == nil {
			p.plan.settled(o, dir)
			p.alone = true
			return k, nil
		}
	}
	p.brief = 0
	if err := look(p.plan); err != nil {
		return nil, err
	}
	k, err := p.kids.start(p.plan.path, p.plan.argv, &syscall.ProcAttr{
		Dir: p.plan.dir, Env: p.plan.env, Files: fds[:],
		Sys: &syscall.SysProcAttr{Setsid: true, Credential: p.plan.credential},
	})
	if err != nil {
		return nil, p.plan.whyNot(err)
	}
	return k, nil
}

// supervise follows the process to its end and says how it ended.
func (p *process) supervise() {
	p.awaitLeader()
	ended := time.Now()
	if p.in != nil {
		p.in.abandon()
	}
	for _, pump := range p.pumps {
		pump.leaderEnded()
	}
	for _, pump := range p.pumps {
		<-pump.complete
	}
	late := time.NewTimer(time.Until(ended.Add(linger)))
	defer late.Stop()
	for _, pump := range p.pumps {
		select {
		case <-pump.ended:
		case <-late.C:
			late.Reset(0) // for the next pump
		}
	}
	p.conclude(ended)
}

// conclude tells how the process ended, once all its output is kept.
func (p *process) conclude(ended time.Time) {
	e := p.leader.how()
	e.TimedOut = e.TimedOut || p.timedOut.Load()
	p.mu.Lock()
	p.ended, p.exit = ended, e
	p.mu.Unlock()
	p.out.finish(e)
	close(p.done)
}

// awaitLeader returns when the leader has ended, killing the tree in time.
func (p *process) awaitLeader() {
	if p.timeout <= 0 {
		<-p.leader.over()
		return
	}
	bell := time.NewTimer(time.Until(p.started.Add(p.timeout)))
	defer bell.Stop()
	select {
	case <-p.leader.over():
	case <-bell.C:
		p.timedOut.Store(true)
		p.leader.kill()
		<-p.leader.over()
	}
}

// kill ends the tree unless its leader has ended already.
func (p *process) kill() {
	select {
	case <-p.leader.over():
	default:
		p.leader.kill()
	}
}

// end kills the tree and lets go of what may still write.
func (p *process) end() {
	p.kill()
	for _, pump := range p.pumps {
		pump.pipe.Close()
	}
}

// signal sends to the process's group.
func (p *process) signal(s syscall.Signal) error {
	alive, err := p.leader.signal(s)
	if err != nil {
		return fromOS(err)
	}
	if !alive {
		return refuse(conflict, "", "the process has ended")
	}
	return nil
}

// endedAt is when its leader ended; zero while it lives.
func (p *process) endedAt() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended
}

// describe is the process as the host sees it.
func (p *process) describe() *guestv1.Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := &guestv1.Process{Session: p.session, Id: p.id, Name: p.name, Pid: int32(p.leader.number()), Cwd: []byte(p.plan.cwd),
		User: p.plan.user, StartedUnixNano: p.started.UnixNano(), Exit: p.exit}
	d.StdoutBytes, d.StderrBytes = p.out.written()
	for _, a := range p.plan.argv {
		d.Argv = append(d.Argv, []byte(a))
	}
	if p.exit != nil {
		d.EndedUnixNano = p.ended.UnixNano()
	}
	return d
}

// shorten cuts a description's long texts to about size bytes each, for lists.
func shorten(d *guestv1.Process, size int) *guestv1.Process {
	if len(d.Cwd) > size {
		d.Cwd = append(d.Cwd[:size:size], "..."...)
	}
	for i, a := range d.Argv {
		if len(a) > size {
			d.Argv[i] = append(a[:size:size], "..."...)
			d.Argv = d.Argv[:i+1]
			break
		}
		size -= len(a)
	}
	return d
}

// program is the leader of a process that is a program of its own.
type program struct {
	kids  *children
	child *child
}

func (l *program) number() int                           { return l.child.pid }
func (l *program) over() <-chan struct{}                 { return l.child.done }
func (l *program) how() *guestv1.Exit                    { return exitOf(l.child.status) }
func (l *program) signal(s syscall.Signal) (bool, error) { return l.kids.signal(l.child, s) }
func (l *program) kill()                                 { l.kids.killTree(l.child) }

// exitOf reads a status as a shell does: 128+n for signal n.
func exitOf(s syscall.WaitStatus) *guestv1.Exit {
	if s.Signaled() {
		return &guestv1.Exit{Code: 128 + int32(s.Signal()), Signal: signalName(s.Signal())}
	}
	return &guestv1.Exit{Code: int32(s.ExitStatus())}
}
