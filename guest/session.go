package guest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

const (
	maxQueued = 64                     // commands that wait in one session
	grace     = 500 * time.Millisecond // for a shell to write down its state when it is ended
	answering = 10 * time.Second       // for a shell to begin with a command
	settling  = 3 * time.Second        // for a shell to report a command that is done
)

// session is a shell that remembers, and the queue of its commands. One
// goroutine runs them; what it alone uses comes first.
type session struct {
	name    string
	user    string
	dialect *dialect
	plain   bool  // it reads no profile
	plan    *plan // of a shell that begins anew
	kids    *children
	dir     string // of its files; the user may not change what is in it
	scratch string // before every path that the shell sees
	created time.Time

	shell *shell    // nil: none
	ahead bool      // it was begun before there was a command, and has said nothing yet
	lost  string    // why there is none, for the next command; "": there was none yet
	state string    // the file in dir to go on from; ""
	flags string    // of the shell, as last reported
	left  []int     // sessions of lost shells, with what they left running
	rest  time.Time // when the last command ended

	mu       sync.Mutex
	closed   bool
	count    int
	queue    []*run
	current  *run
	cwd      string // as last reported
	pid      int
	commands int64
	restarts int64
	wake     chan struct{} // one token: the queue has changed
	ended    chan struct{} // closed when nothing is left of it
}

// enqueue makes a command; it is the launch of a process.
func (s *session) enqueue(q *guestv1.RunInSessionRequest, p *process) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return refuse(notFound, "open it again", "session %q is closed", s.name)
	}
	if len(s.queue) >= maxQueued {
		return refuse(exhausted, "wait for them, or cancel them", "%d commands wait in session %q", len(s.queue), s.name)
	}
	s.count++
	r := newRun(s, s.count, q)
	if err := r.open(p); err != nil {
		return err
	}
	s.queue = append(s.queue, r)
	poke(s.wake)
	return nil
}

// serve runs the commands until the session is closed.
func (s *session) serve() {
	defer close(s.ended)
	if s.plain {
		s.beginAhead()
	}
	for {
		r := s.next()
		if r == nil {
			break
		}
		e := s.execute(r)
		s.rest = time.Now()
		s.mu.Lock()
		s.current = nil
		s.commands++
		s.mu.Unlock()
		r.finish(e)
	}
	if s.shell != nil {
		s.kids.killTree(s.shell.child)
		<-s.shell.child.done
		s.shell.close()
	}
	for _, sid := range s.left {
		killSession(sid)
	}
	os.RemoveAll(s.dir)
}

// next takes the first command that is not cancelled; nil at the end.
func (s *session) next() *run {
	for {
		r, closed := s.take()
		switch {
		case r == nil && closed:
			return nil
		case r == nil:
			select {
			case <-s.wake:
			case <-s.gone():
			}
			continue
		}
		select {
		case <-r.cancelled:
			r.finish(cancelledExit())
			s.mu.Lock()
			s.current = nil
			s.mu.Unlock()
		default:
			return r
		}
	}
}

// gone is closed when the shell ends while nothing runs.
func (s *session) gone() <-chan struct{} {
	if s.shell == nil {
		return nil
	}
	select {
	case <-s.shell.child.done:
		s.drop("")
		return nil
	default:
		return s.shell.child.done
	}
}

func (s *session) take() (r *run, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) > 0 {
		r = s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
		s.current = r
	}
	return r, s.closed
}

// close ends the session; it returns when nothing is left.
func (s *session) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(nil)
	poke(s.wake)
	<-s.ended
}

// cancel ends the command that runs and drops those that wait; or, if one is
// named, that one alone. It returns how many there were, and does not wait for
// the end of the one that runs.
func (s *session) cancel(only *run) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	if s.current != nil && (only == nil || only == s.current) {
		s.current.cancel()
		n++
	}
	s.queue = slices.DeleteFunc(s.queue, func(r *run) bool {
		if only != nil && only != r {
			return false
		}
		r.cancel()
		r.finish(cancelledExit())
		n++
		return true
	})
	return n
}

// cancelledExit is of a command that was ended before its turn.
func cancelledExit() *guestv1.Exit {
	return &guestv1.Exit{Code: 128 + int32(syscall.SIGTERM), Signal: signalName(syscall.SIGTERM)}
}

// own gives a file of the session's to its user, if it could be made.
func (s *session) own(path string, err error) error {
	if err == nil && s.plan.credential != nil {
		err = os.Lchown(path, int(s.plan.credential.Uid), int(s.plan.credential.Gid))
	}
	if err != nil {
		e := fromOS(err)
		return refuse(codeOf(e), hintOf(e), "make the session's files: %s", textOf(e))
	}
	return nil
}

// heard takes over what a shell reported.
func (s *session) heard(r report) {
	s.flags = r.flags
	cwd := r.cwd
	if rest, ok := strings.CutPrefix(cwd, s.scratch); ok && s.scratch != "" {
		cwd = filepath.Join("/", rest)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cwd = cwd
	s.pid = s.shell.child.pid
}

// drop lets go of a shell that has ended, for a reason that the next command is
// told unless it is "" and the shell's own end says it.
func (s *session) drop(why string) {
	if why == "" {
		why = howShellEnded(s.shell.child.status)
	}
	sid := s.shell.child.pid
	if len(sessionMembers(sid)) > 0 && len(s.left) < maxLeft {
		s.left = append(s.left, sid)
	}
	s.shell.close()
	s.shell, s.lost, s.ahead = nil, why, false
	s.mu.Lock()
	s.pid = 0
	s.restarts++
	s.mu.Unlock()
}

// maxLeft bounds the lost shells whose background jobs are remembered.
const maxLeft = 256

func howShellEnded(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "the shell was ended by " + signalName(status.Signal())
	}
	return fmt.Sprintf("the shell exited with %d", status.ExitStatus())
}

// keepState goes on from the state that a command wrote, if all of it is there:
// its last line holds the command's token.
func (s *session) keepState(r *run, file string) {
	want := "#" + r.token + "\n"
	f, err := os.Open(filepath.Join(s.dir, file))
	if err != nil {
		return
	}
	defer f.Close()
	got := make([]byte, len(want))
	if _, err := f.Seek(-int64(len(want)), io.SeekEnd); err != nil {
		return
	}
	if _, err := io.ReadFull(f, got); err == nil && string(got) == want {
		s.state = file
	}
}

// spare is the letter of the state file that is not in use.
func (s *session) spare() string {
	if s.state == "state.a" {
		return "b"
	}
	return "a"
}

// describe is the session as the host sees it.
func (s *session) describe() *guestv1.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &guestv1.Session{Name: s.name, User: s.user, Shell: []byte(s.plan.path), Cwd: []byte(s.cwd),
		CreatedUnixNano: s.created.UnixNano(), Pid: int32(s.pid), Queued: int32(len(s.queue)),
		Commands: s.commands, Restarts: s.restarts, Running: runningID(s.current)}
}

func runningID(r *run) string {
	if r == nil {
		return ""
	}
	return r.id
}

// touch makes an empty file if there is none.
func touch(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func (s *session) path(name string) string { return filepath.Join(s.dir, name) }

// folders are where a shell may begin, the best first.
func (s *session) folders() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return []string{filepath.Join("/", s.scratch, s.cwd), s.plan.dir, filepath.Join("/", s.scratch)}
}
