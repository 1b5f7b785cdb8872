package guest

import (
	"bufio"
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A session's shell runs a small program that reads orders from one descriptor
// and reports to another. An order names files of the session's folder: the
// command's text, and pipes for its input and outputs. So a command is data all
// the way, its output can be nobody else's, and what it leaves running keeps its
// own pipes. Before a report, and when the shell exits, the program writes down
// the shell's state, from which another one can go on.
type dialect struct {
	program string   // the name of the shell
	login   []string // its arguments before the text, when it begins anew
	again   []string // when it goes on from a state
	text    string
	orders  int // the descriptor that it reads
	reports int // the descriptor that it writes
	order   string
}

//go:embed shell.bash
var bashText string

//go:embed shell.sh
var shText string

// dialects in the order of preference. The descriptors are such that scripts do
// not use them; the plain shell knows only those of one digit.
var dialects = []dialect{
	{program: "bash", login: []string{"-lc"}, again: []string{"-c"}, text: bashText, orders: 200, reports: 201, order: "%08d%s%s%d%s\n"},
	{program: "sh", login: []string{"-lc"}, again: []string{"-c"}, text: shText, orders: 8, reports: 9, order: "%08d %s %s %d %s\n"},
}

// shell is one shell of a session.
type shell struct {
	child   *child
	orders  *os.File
	answers *os.File
	reports chan report
	closed  chan struct{} // ends the reader of reports
}

// report is what a shell says after a command.
type report struct {
	token  string
	status int
	flags  string // as "$-"
	cwd    string
}

const (
	ready     = "ready" // the token of a shell's first report
	startTime = 30 * time.Second
	maxReport = 8 << 10
)

// begin starts a shell of a session in dir.
func (s *session) begin(dir string) (*shell, error) {
	args, env := s.dialect.login, s.plan.env
	if s.plain {
		args = s.dialect.again
	}
	if s.state != "" {
		args, env = s.dialect.again, nil
	}
	return s.dialect.begin(s.kids, s.plan, args, env, s.dir, s.state, dir)
}

// begin starts a shell in dir. A state names the file in folder to go on from.
func (d *dialect) begin(kids *children, pl *plan, args, env []string, folder, state, dir string) (*shell, error) {
	// The loop alone is the shell's text: errors then count lines from 1.
	loop := strings.LastIndexByte(strings.TrimSpace(d.text), '\n') + 1
	argv := append(append([]string{d.program}, args...), `eval "$3"; `+d.text[loop:], d.program, folder, state, d.text[:loop])
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fromOS(err)
	}
	defer null.Close()
	var s stdio
	fds := make([]uintptr, d.reports+1)
	for i := range fds {
		fds[i] = ^uintptr(0) // closed
	}
	fds[0], fds[1], fds[2] = null.Fd(), null.Fd(), null.Fd()
	orders, err := s.pipe(0, false, nil)
	if err == nil {
		fds[d.orders] = s.fds[0]
		var answers *os.File
		if answers, err = s.pipe(1, true, nil); err == nil {
			fds[d.reports] = s.fds[1]
			sh := &shell{orders: orders, answers: answers, reports: make(chan report), closed: make(chan struct{})}
			sh.child, err = kids.start(pl.path, argv, &syscall.ProcAttr{Dir: dir, Env: env, Files: fds,
				Sys: &syscall.SysProcAttr{Setsid: true, Credential: pl.credential}})
			if err == nil {
				s.handOver()
				go sh.listen()
				return sh, nil
			}
			err = pl.whyNot(err)
		}
	}
	s.close()
	return nil, fromOS(err)
}

// listen passes reports on until the shell's descriptor, or this one, is closed.
func (sh *shell) listen() {
	defer close(sh.reports)
	in := bufio.NewReaderSize(sh.answers, maxReport)
	for whole := true; ; {
		b, err := in.ReadSlice(0)
		if errors.Is(err, bufio.ErrBufferFull) {
			whole = false
			continue
		}
		if err != nil {
			return
		}
		r, ok := parseReport(b[:len(b)-1])
		if ok && whole {
			select {
			case sh.reports <- r:
			case <-sh.closed:
				return
			}
		}
		whole = true
	}
}

// parseReport reads "token status flags folder". The folder is last, and may
// hold any byte.
func parseReport(b []byte) (report, bool) {
	f := bytes.SplitN(b, []byte(" "), 4)
	if len(f) != 4 {
		return report{}, false
	}
	status, err := strconv.Atoi(string(f[1]))
	if err != nil || status < 0 || status > 255 || len(f[3]) > maxPath {
		return report{}, false
	}
	return report{token: string(f[0]), status: status, flags: string(f[2]), cwd: string(f[3])}, true
}

// send gives the shell an order; a shell that has gone cannot take it.
func (sh *shell) send(order string) error {
	sh.orders.SetWriteDeadline(time.Now().Add(time.Second))
	_, err := sh.orders.WriteString(order)
	return err
}

// dead reports whether the shell has ended.
func (sh *shell) dead() bool {
	select {
	case <-sh.child.done:
		return true
	default:
		return false
	}
}

// close lets go of a shell that has ended.
func (sh *shell) close() {
	close(sh.closed)
	sh.orders.Close()
	sh.answers.Close()
	for range sh.reports { // until its reader has ended
	}
}

// order is the line that makes a shell run a command.
func (d *dialect) orderOf(n int, token, state string, stdin, merge bool) string {
	in, errs := 0, "e"
	if stdin {
		in = 1
	}
	if merge {
		errs = "o"
	}
	return fmt.Sprintf(d.order, n, token, state, in, errs)
}
