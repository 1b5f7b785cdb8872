package drivertest

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// witness is a program that holds one of each thing that a fork must carry over,
// and tells of it on a port.
//
//go:embed witness.py
var witness string

const witnessPort = 8123

// nodeServer counts its requests.
const nodeServer = `let n = 0; require('http').createServer((q, r) => r.end(String(++n))).listen(8124, '127.0.0.1')`

// begin starts the witness in a machine and waits until it listens.
func beginWitness(t *testing.T, c *guestclient.Client) {
	t.Helper()
	if _, err := c.WriteFile(within(t), "/workspace/witness.py", sandbox.WriteOptions{}, strings.NewReader(witness)); err != nil {
		t.Fatal(err)
	}
	detached(t, c, "python3", "/workspace/witness.py", strconv.Itoa(witnessPort))
	if _, err := c.WaitPort(within(t), "", sandbox.PortWait{Port: witnessPort}); err != nil {
		t.Fatalf("the witness does not listen: %v", err)
	}
}

// detached starts a program that outlives its stream.
func detached(t *testing.T, c *guestclient.Client, argv ...string) {
	t.Helper()
	ev, err := c.Start(within(t), sandbox.Command{Argv: argv, Detach: true})
	if err != nil {
		t.Fatal(err)
	}
	ev.Close()
}

// ask asks the witness of a machine.
func ask(t *testing.T, c *guestclient.Client, question string) string {
	t.Helper()
	return talk(t, c, fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d && echo %s >&3 && cat <&3", witnessPort, question))
}

// testForkPrograms: what programs hold goes on in the children, each by itself.
func testForkPrograms(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	if _, ok := b.forks(); !ok {
		return
	}
	if !isolates(t, h.Driver) {
		t.Logf("LOUDLY: the programs are those of a template, and the driver %s has none", h.Driver.Class())
		b.end()
		return
	}
	s := b.stage()
	kids := b.forked(2)
	s.goesOn(kids)
	over(t, kids...)
	b.end()
}

// stage is a machine with programs that hold things.
type stage struct {
	*bed
	node    bool
	editor  sandbox.Terminal
	python  sandbox.Terminal
	drawn   view // of the editor
	counted int  // by the threads
}

// stage starts the programs.
func (b *bed) stage() *stage {
	b.t.Helper()
	t, c := b.t, b.guest
	s := &stage{bed: b}
	beginWitness(t, c)
	if got := ask(t, c, "next"); got != "line 1" {
		t.Fatalf("the witness reads %q", got)
	}
	s.node = run(t, c, sh("command -v node")).exit.Code == 0
	if s.node {
		detached(t, c, "node", "-e", nodeServer)
		if _, err := c.WaitPort(within(t), "", sandbox.PortWait{Port: 8124}); err != nil {
			t.Fatalf("node does not listen: %v", err)
		}
		s.wantNode(c, "1")
	} else {
		t.Log("LOUDLY: the template has no node")
	}
	openSession(t, c, sandbox.SessionOptions{Name: "work"})
	inSession(t, c, "work", line("cd /tmp; export KEPT=yes; sleep 10000 & here() { echo in $PWD; }"))

	s.editor = shell(t, c, "editor")
	w := watch(t, c, s.editor.ID, sandbox.TerminalAttach{})
	w.shows(">")
	do(t, c, s.editor.ID, w, step{"export LC_ALL=C.UTF-8\r", "UTF-8\n>"})
	typeIn(t, c, s.editor.ID, editor.line+"\r")
	for _, st := range editor.steps {
		do(t, c, s.editor.ID, w, st)
	}
	settled(t, c, s.editor.ID, w)
	s.drawn = w.sees()
	w.leave()

	s.python = shell(t, c, "python")
	w = watch(t, c, s.python.ID, sandbox.TerminalAttach{})
	w.shows(">")
	typeIn(t, c, s.python.ID, "python3 -q\r")
	w.shows(">>>")
	do(t, c, s.python.ID, w, step{"x = 6\r", "x = 6\n>>>"})
	w.leave()
	s.counted = s.count(c)
	return s
}

func (s *stage) count(c *guestclient.Client) int {
	s.t.Helper()
	n, err := strconv.Atoi(ask(s.t, c, "count"))
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stage) wantNode(c *guestclient.Client, want string) {
	s.t.Helper()
	if got := talk(s.t, c, `exec 3<>/dev/tcp/127.0.0.1/8124; printf 'GET / HTTP/1.0\r\n\r\n' >&3; tail -n 1 <&3`); got != want {
		s.t.Errorf("node says %q, want %q", got, want)
	}
}

// goesOn checks the machine and its children, each with what it does by itself.
func (s *stage) goesOn(kids []*bed) {
	s.t.Helper()
	for i, k := range append([]*bed{s.bed}, kids...) {
		who := fmt.Sprintf("child %d", i)
		s.witnesses(who, k.guest)
		s.sessions(who, k.guest)
		s.terminals(who, k.guest)
		if s.node {
			s.wantNode(k.guest, "2")
		}
	}
	// One settles its transaction, and the other drops it.
	for i, k := range kids {
		end := []string{"commit", "rollback"}[i%2]
		if got, want := ask(s.t, k.guest, end), []string{"2", "1"}[i%2]; got != want {
			s.t.Errorf("after %s there are %s rows, want %s", end, got, want)
		}
		if got := talk(s.t, k.guest, `python3 -c "import sqlite3; print(sqlite3.connect('/workspace/db').execute('select count(*) from t').fetchone()[0])"`); got != []string{"2", "1"}[i%2] {
			s.t.Errorf("another process finds %s rows after %s", got, end)
		}
	}
	if got := ask(s.t, s.guest, "rollback"); got != "1" {
		s.t.Errorf("the machine has %s rows", got)
	}
}

// witnesses asks for all that the witness holds. Each machine writes what the
// others must not see.
func (s *stage) witnesses(who string, c *guestclient.Client) {
	s.t.Helper()
	t := s.t
	if n := s.count(c); n <= s.counted {
		t.Errorf("%s: its threads have counted to %d, and to %d before", who, n, s.counted)
	}
	own := strings.ReplaceAll(who, " ", "-")
	for question, want := range map[string]string{
		"heap": "intact", "next": "line 2", "threads": "4", "pending": "2", "note+" + own: "ghost" + own,
	} {
		if got := ask(t, c, question); got != want {
			t.Errorf("%s: %s is %q, want %q", who, question, got, want)
		}
	}
	name := "made-by-" + own
	if got := talk(t, c, "touch /workspace/watched/"+name+"; exec 3<>/dev/tcp/127.0.0.1/"+strconv.Itoa(witnessPort)+"; echo seen >&3; cat <&3"); got != name {
		t.Errorf("%s: its watch has seen %q", who, got)
	}
	now, err := strconv.ParseInt(talk(t, c, "date +%s"), 10, 64)
	if off := time.Since(time.Unix(now, 0)).Abs(); err != nil || off > time.Minute {
		t.Errorf("%s: its clock is off by %v, %v", who, off, err)
	}
}

func (s *stage) sessions(who string, c *guestclient.Client) {
	s.t.Helper()
	r := inSession(s.t, c, "work", line(`here; echo $KEPT; jobs | grep -c Running; kill %1; cd /workspace`))
	if got := r.stdout.String(); got != "in /tmp\nyes\n1\n" {
		s.t.Errorf("%s: the session says %q, %q", who, got, &r.stderr)
	}
}

func (s *stage) terminals(who string, c *guestclient.Client) {
	s.t.Helper()
	t := s.t
	w := watch(t, c, s.editor.ID, sandbox.TerminalAttach{})
	settled(t, c, s.editor.ID, w)
	if got := w.sees(); got != s.drawn {
		t.Errorf("%s: the editor shows\n%+v\nand before\n%+v", who, got, s.drawn)
	}
	do(t, c, s.editor.ID, w, step{"o" + who + "\x1b", who})
	typeIn(t, c, s.editor.ID, ":wq\r")
	w.prompts()
	w.leave()
	if got := talk(t, c, "grep child note"); got != who {
		t.Errorf("%s: the editor wrote %q", who, got)
	}
	w = watch(t, c, s.python.ID, sandbox.TerminalAttach{})
	do(t, c, s.python.ID, w, step{"x * 7\r", "\n42\n>>>"})
	w.leave()
}
