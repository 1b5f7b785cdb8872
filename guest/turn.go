package guest

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// execute runs a command in the session's shell and says how it ended. A shell
// that the command ended is made anew by the next one.
func (s *session) execute(r *run) *guestv1.Exit {
	note := ""
	for attempt := 0; ; attempt++ {
		why, err := s.ensure(r)
		if why != "" {
			note = why
		}
		if err != nil {
			return &guestv1.Exit{Code: 126, Error: textOf(err), Restarted: note}
		}
		t := &turn{session: s, run: r, file: "state." + s.spare()}
		e, begun := t.take()
		if begun || t.asked || attempt == attempts {
			if e.Restarted == "" {
				e.Restarted = note
			}
			return e
		}
		note = e.Restarted
		if attempt+1 == attempts { // a shell that does not even begin is not to be had as it was
			s.state, note = "", forgotten
		}
	}
}

// attempts is how often a shell that does not begin with a command is replaced.
const attempts = 2

const forgotten = "the shell could not go on as it was: variables and functions are lost"

// ensure makes a shell if there is none. It returns why the one before was lost.
func (s *session) ensure(r *run) (lost string, err error) {
	if s.shell != nil && s.shell.dead() {
		s.drop("")
	}
	if s.shell != nil && !s.ahead {
		return "", nil
	}
	lost, s.lost = s.lost, ""
	for {
		if s.shell == nil {
			if err := s.beginAny(); err != nil {
				return lost, err
			}
		}
		ahead := s.ahead
		s.ahead = false
		switch err = s.greet(r); {
		case err == nil || s.state == "" && !ahead:
			return lost, err
		case !ahead:
			s.state = ""
			lost = forgotten
		}
	}
}

// beginAny starts a shell in the first folder where one can be.
func (s *session) beginAny() (err error) {
	for _, folder := range s.folders() {
		if s.shell, err = s.begin(folder); err == nil {
			return nil
		}
	}
	return err
}

// beginAhead starts a shell before there is a command for it. What is in its way is the
// first command's to say, which tries again.
func (s *session) beginAhead() { s.ahead = s.beginAny() == nil }

// greet waits until a new shell has read its state.
func (s *session) greet(r *run) error {
	bell := time.NewTimer(startTime)
	defer bell.Stop()
	why := ""
	for why == "" {
		select {
		case rep, ok := <-s.shell.reports:
			if ok && rep.token == ready {
				s.heard(rep)
				return nil
			}
			if !ok {
				why = "it closed its reports"
			}
		case <-s.shell.child.done:
			why = howShellEnded(s.shell.child.status)
		case <-bell.C:
			why = "it does not answer"
		case <-r.cancelled:
			why = "the command was cancelled"
		}
	}
	s.kids.killTree(s.shell.child)
	<-s.shell.child.done
	s.drop(why)
	s.lost = ""
	return refuse(conflict, "look into the profile of the session's user", "start a shell: %s", why)
}

// turn is one command in one shell.
type turn struct {
	session *session
	run     *run
	file    string // that the state goes to
	place   *place
	begun   bool
	asked   bool // its end was asked for
}

// take gives the shell the command and follows it to its end. begun is false if
// the shell was lost before it came to the command.
func (t *turn) take() (e *guestv1.Exit, begun bool) {
	s, r := t.session, t.run
	if err := r.script(s.flags); err != nil {
		return &guestv1.Exit{Code: 126, Error: textOf(err)}, true
	}
	if err := s.own(s.path(t.file), touch(s.path(t.file))); err != nil {
		return &guestv1.Exit{Code: 126, Error: textOf(err)}, true
	}
	t.place = newPlace(s.kids, s.shell.child, time.Since(s.rest) < 2*tick)
	r.mu.Lock()
	r.place = t.place
	r.mu.Unlock()
	err := s.shell.send(s.dialect.orderOf(r.seq, r.token, s.spare(), r.stdin, r.merge))
	if err != nil {
		return t.end("the shell takes no commands", false), false
	}
	e = t.follow()
	return e, t.begun || held(r.lease) > 0
}

// held is how many bytes a pipe holds.
func held(pipe *os.File) (n int) {
	raw, err := pipe.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return n
}

// follow returns when the command has ended, by itself or not.
func (t *turn) follow() *guestv1.Exit {
	s, r := t.session, t.run
	started, done := make(chan struct{}), make(chan struct{})
	watched := make(chan struct{})
	go func() { defer close(watched); r.watchLease(started, done) }()
	begun := started
	defer func() {
		r.lease.SetReadDeadline(time.Unix(1, 0))
		<-watched
		r.lease.SetReadDeadline(time.Time{})
		select {
		case <-begun:
			t.begun = true
		default:
		}
	}()
	bell := time.NewTimer(answering)
	defer bell.Stop()
	var out <-chan time.Time // the command's own time is up
	if r.timeout > 0 {
		end := time.NewTimer(r.timeout)
		defer end.Stop()
		out = end.C
	}
	for {
		select {
		case rep, ok := <-s.shell.reports:
			if !ok {
				return t.silenced()
			}
			if rep.token == r.token {
				return t.reported(rep)
			}
		case <-s.shell.child.done:
			return t.died()
		case <-started:
			t.begun, started = true, nil
			r.handedOver()
			bell.Stop()
		case <-done:
			done = nil
			bell.Reset(settling)
		case <-bell.C:
			return t.end("the shell no longer answered", false)
		case <-out:
			t.asked = true
			return t.end("the command's time was up", true)
		case <-r.cancelled:
			t.asked = true
			return t.end("the command was cancelled", false)
		}
	}
}

// reported is the end of a command whose shell lives on.
func (t *turn) reported(rep report) *guestv1.Exit {
	t.begun = true
	t.session.heard(rep)
	t.session.keepState(t.run, t.file)
	return &guestv1.Exit{Code: int32(rep.status)}
}

// silenced is the end of a command whose shell reports no more: most are dead.
func (t *turn) silenced() *guestv1.Exit {
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-t.session.shell.child.done:
		return t.died()
	case <-late.C:
		return t.end("the shell no longer answered", false)
	}
}

// died is the end of a command that ended its shell. What the shell reported
// just before counts.
func (t *turn) died() *guestv1.Exit {
	s := t.session
	late := time.NewTimer(20 * time.Millisecond)
	defer late.Stop()
	for {
		select {
		case rep, ok := <-s.shell.reports:
			if ok && rep.token != t.run.token {
				continue
			}
			if ok {
				return t.reported(rep)
			}
		case <-late.C:
		}
		s.keepState(t.run, t.file)
		e := exitOf(s.shell.child.status)
		e.Restarted = howShellEnded(s.shell.child.status)
		s.drop("")
		s.lost = "" // told by this command
		return e
	}
}

// end ends the command with its shell, which may first write down its state, and
// with all that was started since it began.
func (t *turn) end(why string, timedOut bool) *guestv1.Exit {
	s, r := t.session, t.run
	s.kids.signalOne(s.shell.child, syscall.SIGTERM)
	t.place.kill()
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-s.shell.child.done:
	case <-late.C:
		s.kids.signalOne(s.shell.child, syscall.SIGKILL)
		<-s.shell.child.done
	}
	t.place.kill()
	s.keepState(r, t.file)
	e := exitOf(s.shell.child.status)
	e.TimedOut, e.Restarted = timedOut, why
	s.drop(why)
	s.lost = ""
	return e
}
