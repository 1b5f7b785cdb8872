package guest

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
	"github.com/berth-dev/berth/screen"
)

const (
	terminalBytes = 256 << 10              // of newest output kept for those who come back
	hangUpTime    = 300 * time.Millisecond // for programs to end by themselves
	maxViewers    = 64                     // attached to one terminal
)

// terminal is a program with a terminal of its own, and the screen it shows.
type terminal struct {
	id, name string
	seq      int
	plan     *plan
	started  time.Time
	kids     *children
	child    *child
	master   *os.File
	in       *input
	pump     *pump
	done     chan struct{} // closed when the exit is known and all output drawn

	mu         sync.Mutex
	cols, rows int
	screen     *screen.Screen
	kept       ring
	viewers    map[*viewer]struct{}
	ended      time.Time
	exit       *guestv1.Exit
}

// launch starts the program. Its goroutines are not running yet.
func (t *terminal) launch() error {
	master, slave, err := openPTY(t.cols, t.rows, t.plan.credential)
	if err != nil {
		return withHint(fromOS(err), exhausted, "close some terminals")
	}
	fd := slave.Fd()
	t.child, err = t.kids.start(t.plan.path, t.plan.argv, &syscall.ProcAttr{
		Dir: t.plan.dir, Env: t.plan.env, Files: []uintptr{fd, fd, fd},
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0, Credential: t.plan.credential},
	})
	slave.Close()
	if err != nil {
		master.Close()
		return t.plan.whyNot(err)
	}
	t.started, t.master = time.Now(), master
	t.in, t.pump = newInput(master), newPump(master)
	return nil
}

// draw takes what the program has printed.
func (t *terminal) draw(b []byte) {
	t.mu.Lock()
	t.screen.Write(b)
	t.kept.write(b)
	answer := t.screen.TakeReplies()
	if len(t.viewers) > 0 {
		answer = nil // their terminals answer
	}
	t.wakeAll()
	t.mu.Unlock()
	if len(answer) > 0 {
		t.tryWrite(answer)
	}
}

// tryWrite types what the program may not be waiting for: it must never wait.
func (t *terminal) tryWrite(b []byte) {
	raw, err := t.master.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Write(func(fd uintptr) bool { // a program that reads nothing gets no answer
		_, _ = syscall.Write(int(fd), b)
		return true
	})
}

// supervise follows the program to its end. What it left running loses the
// terminal, as when a window is closed.
func (t *terminal) supervise() {
	<-t.child.done
	ended := time.Now()
	late := time.NewTimer(linger)
	defer late.Stop()
	select {
	case <-t.pump.ended:
	case <-late.C:
		t.master.Close()
		<-t.pump.ended
	}
	t.in.abandon()
	t.mu.Lock()
	t.ended, t.exit = ended, exitOf(t.child.status)
	t.wakeAll()
	t.mu.Unlock()
	close(t.done)
}

// hangUp ends the terminal with all that runs on it, politely first.
func (t *terminal) hangUp() {
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGCONT} {
		// One that has ended, or may not be told, is found by the kill below.
		_, _ = t.kids.signalForeground(t.child, s)
		_, _ = t.kids.signal(t.child, s)
	}
	patience := time.NewTimer(hangUpTime)
	defer patience.Stop()
	select {
	case <-t.child.done:
	case <-patience.C:
	}
	t.kids.killTree(t.child)
}

// resize sets the size for everyone; the last one set counts.
func (t *terminal) resize(cols, rows int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.exit != nil {
		return errEnded()
	}
	if cols == t.cols && rows == t.rows {
		return nil
	}
	raw, err := t.master.SyscallConn()
	if err != nil {
		return fromOS(err)
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = setSize(int(fd), cols, rows) }); err != nil {
		return errEnded() // it is being closed
	}
	if failed != nil {
		return fromOS(failed)
	}
	t.cols, t.rows = cols, rows
	t.screen.Resize(cols, rows)
	t.wakeAll()
	return nil
}

func errEnded() error { return refuse(conflict, "open a new one", "the terminal has ended") }

func (t *terminal) wakeAll() {
	for v := range t.viewers {
		poke(v.wake)
	}
}

// describe is the terminal as the host sees it.
func (t *terminal) describe() *guestv1.Terminal {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := &guestv1.Terminal{Id: t.id, Name: t.name, Pid: int32(t.child.pid), Cwd: []byte(t.plan.cwd), User: t.plan.user,
		Cols: uint32(t.cols), Rows: uint32(t.rows), Title: t.screen.Title(), Clients: uint32(len(t.viewers)),
		Offset: t.kept.end, StartedUnixNano: t.started.UnixNano(), Exit: t.exit}
	left := 4096
	for _, a := range t.plan.argv {
		a = a[:min(len(a), left)]
		left -= len(a)
		d.Argv = append(d.Argv, []byte(a))
		if left == 0 {
			break
		}
	}
	if t.exit != nil {
		d.EndedUnixNano = t.ended.UnixNano()
	}
	return d
}

// loginShell makes a plan one of the user's login shell.
func (p *plan) loginShell() { p.argv[0] = "-" + filepath.Base(p.path) }
