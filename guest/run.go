package guest

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	guestv1 "github.com/berth-dev/berth/guestapi/v1"
)

// run is one command of a session, and the leader of its process: waiting,
// running or ended.
type run struct {
	session *session
	id      string // of its process
	seq     int
	token   string
	text    string // what the shell evaluates
	timeout time.Duration
	stdin   bool
	merge   bool

	path  string     // of its files, without their endings
	pipes []*os.File // the guest's ends, held until the end
	lease *os.File   // tells when the shell begins the command, and when it is done with it

	cancelled chan struct{}
	cancel    func()
	ended     chan struct{}

	mu    sync.Mutex
	place *place // nil while it waits, and when it has ended
	exit  *guestv1.Exit
}

func newRun(s *session, seq int, r *guestv1.RunInSessionRequest) *run {
	var token [8]byte
	rand.Read(token[:])
	x := &run{session: s, seq: seq, token: hex.EncodeToString(token[:]), text: commandText(r),
		timeout: time.Duration(r.TimeoutMs) * time.Millisecond, stdin: r.Stdin, merge: r.Merge,
		path: filepath.Join(s.dir, leadingZeros(seq)), cancelled: make(chan struct{}), ended: make(chan struct{})}
	x.cancel = sync.OnceFunc(func() { close(x.cancelled) })
	return x
}

func leadingZeros(n int) string {
	s := strconv.Itoa(n)
	return strings.Repeat("0", max(0, 8-len(s))) + s
}

// commandText is the line of a request, or its arguments quoted.
func commandText(r *guestv1.RunInSessionRequest) string {
	if len(r.Shell) > 0 {
		return string(r.Shell)
	}
	words := make([]string, len(r.Argv))
	for i, a := range r.Argv {
		words[i] = quote(string(a))
	}
	return strings.Join(words, " ")
}

// quote makes one word of s for any shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// open makes the pipes of the command; it is the launch of a process.
func (r *run) open(p *process) (err error) {
	defer func() {
		if err != nil {
			r.close()
			for _, pump := range p.pumps {
				pump.pipe.Close()
			}
			if p.in != nil {
				p.in.abandon()
			}
		}
	}()
	outs := []string{".o", ".e"}
	if r.merge {
		outs = outs[:1]
	}
	for _, ending := range outs {
		in, err := r.fifo(ending)
		if err != nil {
			return err
		}
		p.pumps = append(p.pumps, newPump(in))
	}
	if r.lease, err = r.fifo(".l"); err != nil {
		return err
	}
	if r.stdin {
		if err := r.input(p); err != nil {
			return err
		}
	}
	r.id, p.session, p.leader, p.started = p.id, r.session.name, r, time.Now()
	return nil
}

// fifo makes a pipe that the shell writes and returns its reading end. A writing
// end is held until the command ends, so that it is not seen as closed before.
func (r *run) fifo(ending string) (*os.File, error) {
	path := r.path + ending
	if err := r.session.own(path, syscall.Mkfifo(path, 0o600)); err != nil {
		return nil, err
	}
	in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fromOS(err)
	}
	hold, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		in.Close()
		return nil, fromOS(err)
	}
	r.pipes = append(r.pipes, hold)
	return in, nil
}

// input makes the pipe that the shell reads.
func (r *run) input(p *process) error {
	path := r.path + ".i"
	if err := r.session.own(path, syscall.Mkfifo(path, 0o600)); err != nil {
		return err
	}
	hold, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0) // nobody waits for the other side
	if err != nil {
		return fromOS(err)
	}
	r.pipes = append(r.pipes, hold)
	out, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return fromOS(err)
	}
	p.in = newInput(out)
	return nil
}

// script writes down what the shell evaluates. One that traces its commands does
// so from the first of them on.
func (r *run) script(flags string) error {
	text := r.text
	if strings.Contains(flags, "x") {
		text = "set -x; " + text
	}
	path := r.path + ".c"
	return r.session.own(path, os.WriteFile(path, []byte(text), 0o600))
}

// handedOver closes the ends that the shell has its own of by now.
func (r *run) handedOver() {
	for _, f := range r.pipes {
		f.Close()
	}
	r.pipes = nil
}

// close lets go of the files.
func (r *run) close() {
	r.handedOver()
	if r.lease != nil {
		r.lease.Close()
	}
	for _, ending := range []string{".c", ".o", ".e", ".i", ".l"} {
		os.Remove(r.path + ending) // most are there
	}
}

// finish tells how the command ended.
func (r *run) finish(e *guestv1.Exit) {
	r.close()
	r.mu.Lock()
	r.exit, r.place = e, nil
	r.mu.Unlock()
	close(r.ended)
}

// watchLease tells when the shell has opened its pipes, then when it has closed
// the lease, which may be long after: what it left running has it too. It ends
// with the lease.
func (r *run) watchLease(begun, done chan<- struct{}) {
	var b [16]byte
	if n, err := r.lease.Read(b[:]); n == 0 || err != nil {
		return
	}
	close(begun)
	for {
		if _, err := r.lease.Read(b[:]); err != nil {
			if err == io.EOF {
				close(done)
			}
			return
		}
	}
}

func (r *run) over() <-chan struct{} { return r.ended }

func (r *run) how() *guestv1.Exit {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exit
}

// where is the command's place; nil unless it runs.
func (r *run) where() *place {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.place
}

func (r *run) number() int {
	if at := r.where(); at != nil {
		return at.shell.pid
	}
	return 0
}

func (r *run) signal(sig syscall.Signal) (bool, error) {
	if at := r.where(); at != nil {
		return at.signal(sig)
	}
	select {
	case <-r.ended:
		return false, nil
	default:
		return true, refuse(conflict, "cancel it instead", "the command waits for its turn")
	}
}

// kill cancels the command and returns when it has ended.
func (r *run) kill() {
	r.session.cancel(r)
	<-r.ended
}

func (r *run) usage(all []processStat) *guestv1.ProcessUsage {
	at := r.where()
	if at == nil {
		return nil
	}
	return sumUsage(at.members(all))
}
