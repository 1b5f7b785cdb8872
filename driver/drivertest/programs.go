package drivertest

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// program is one that draws on a terminal, and what is done with it.
type program struct {
	needs     string // must be in the template
	line      string // starts it from the shell
	alternate bool   // it draws on the other screen
	steps     []step // the first one has no keys
	quit      string
}

// step is keys, and what the screen shows when they have done their work. That
// is not on the screen before.
type step struct{ keys, shows string }

// editor writes a file, and goes on without writing it again.
var editor = program{
	needs: "vim.tiny", line: "vim.tiny -u NONE note", alternate: true,
	steps: []step{
		{"", `"note" [New`},
		{":set number\r", "  1\n~"},
		{"ione two\rthree 日本語\x1b", "  2 three 日本語"},
		{"yy40p", " 23 three"},
		{":w\r", "written"},
		{"G", " 42 three"},
		{"Olast but one\x1b", "last but one"},
		{"gg", "  1 one two"},
	},
	quit: ":q!\r",
}

var programs = []program{
	editor,
	{
		needs: "less", line: "seq 500 | less", alternate: true,
		steps: []step{{"", "22\n23\n:"}, {"G", "500\n(END)"}, {"g", "1\n2\n3"}, {"/77\r", "77\n78\n"}, {"\x1bOB", "99\n100\n"}},
		quit:  "q",
	},
	{
		needs: "top", line: "top -d 3600", // at rest but for keys
		steps: []step{{"", "COMMAND"}, {"c", "sh -i"}, {"h", "Help for"}, {"\x1b", "COMMAND"}},
		quit:  "q",
	},
	{
		needs: "python3", line: "python3 -q",
		steps: []step{
			{"", "\n>>>"},
			{"print('日本' * 3)\r", "日本日本日本\n>>>"},
			{"print('\\x1b[1;35mcol', 'our\\x1b[0m', sep='')\r", "\ncolour\n>>>"},
			{"x = 6\r", "x = 6\n>>>"},
			{"\x1b[A\x7f7\r", "x = 7\n>>>"}, // the line before, changed
			{"x * 6\r", "\n42\n>>>"},
			{"import time; print('wai', 'ting', sep=''); time.sleep(1000)\r", "\nwaiting"},
			{"\x03", "KeyboardInterrupt\n>>>"},
		},
		quit: "\x04",
	},
}

// isolates reports whether the machines hold a template, rather than what this
// host has.
func isolates(t *testing.T, d driver.Driver) bool {
	t.Helper()
	caps, err := d.Probe(within(t))
	if err != nil {
		t.Fatal(err)
	}
	return caps.Isolates
}

// testTerminalPrograms: programs that draw look the same to those who were there
// and to one who comes later, and leave the terminal as it was.
func testTerminalPrograms(t *testing.T, h Harness) {
	if !isolates(t, h.Driver) {
		t.Logf("LOUDLY: the programs are those of a template, and the driver %s has none", h.Driver.Class())
		return
	}
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	for _, p := range programs {
		if r := run(t, c, sh("command -v "+p.needs)); r.exit.Code != 0 {
			t.Errorf("the template has no %s", p.needs)
			continue
		}
		t.Run(p.needs, func(t *testing.T) { testTerminalProgram(t, c, p) })
	}
	if got := output(t, c, "head -n 2 note; wc -l < note"); got != "one two\nthree 日本語\n42\n" {
		t.Errorf("the editor wrote %q", got)
	}
	stop(t, m)
}

func testTerminalProgram(t *testing.T, c *guestclient.Client, p program) {
	t.Helper()
	term := shell(t, c, p.needs)
	first := watch(t, c, term.ID, sandbox.TerminalAttach{})
	first.shows(">")
	typeIn(t, c, term.ID, "export LC_ALL=C.UTF-8; echo be''fore\r")
	first.shows("\nbefore\n>")
	was := first.text()
	typeIn(t, c, term.ID, p.line+"\r")
	for _, s := range p.steps {
		do(t, c, term.ID, first, s)
		if first.sees().alternate != p.alternate {
			t.Errorf("%s: on the other screen: %v", p.line, !p.alternate)
		}
		same(t, c, term.ID, p.line+" after "+s.shows, first)
	}
	typeIn(t, c, term.ID, p.quit)
	first.prompts()
	if want := was + " " + p.line + "\n>"; p.alternate && first.text() != want {
		t.Errorf("%s left\n%s\nwant\n%s", p.line, first.text(), want)
	}
	do(t, c, term.ID, first, step{"echo al''ive\r", "\nalive\n>"})
	same(t, c, term.ID, p.line+" left", first)
	if err := c.CloseTerminal(within(t), term.ID); err != nil {
		t.Fatal(err)
	}
	<-first.gone
}

func do(t *testing.T, c *guestclient.Client, id string, w *watcher, s step) {
	t.Helper()
	if s.keys != "" {
		typeIn(t, c, id, s.keys)
	}
	w.shows(s.shows)
}

// cursor is where a cursor stands, and whether it is shown.
type cursor struct {
	x, y  int
	shown bool
}

// sees is what its screen is at this time.
func (w *watcher) sees() view {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.look()
}

// prompts waits until the main screen ends in the shell's prompt, and the cursor
// stands there.
func (w *watcher) prompts() {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the screen:\n%s", w.text())
		}
	}()
	eventually(w.t, "the shell is back", func() bool {
		s := w.sees()
		return !s.alternate && s.at.shown && s.at.x == 2 && strings.Split(s.rows, "\n")[s.at.y] == ">"
	})
}

// same attaches a client and checks that it sees what one sees that was there,
// cell by cell. Both are looked at where they have come equally far.
func same(t *testing.T, c *guestclient.Client, id, when string, first *watcher) {
	t.Helper()
	late := watch(t, c, id, sandbox.TerminalAttach{})
	defer late.leave()
	var want, got view
	eventually(t, when+": both have come equally far", func() bool {
		first.mu.Lock()
		defer first.mu.Unlock()
		late.mu.Lock()
		defer late.mu.Unlock()
		want, got = first.look(), late.look()
		return late.seeds == 1 && late.at == first.at
	})
	if got != want {
		t.Errorf("%s: one who comes later sees\n%+v\nthe first\n%+v", when, got, want)
	}
}

// view is all that a screen shows and is set to.
type view struct {
	rows      string
	alternate bool
	at        cursor
	state     string // styles and modes too, as bytes
}

// look is sees with the lock held.
func (w *watcher) look() view {
	s := view{rows: strings.Join(w.screen.Text(), "\n"), alternate: w.screen.Alternate(), state: string(w.screen.Seed(false))}
	s.at.x, s.at.y, s.at.shown = w.screen.Cursor()
	return s
}

// reader is a program that every template can run: it draws on the other screen
// and tells each line that it reads.
var reader = program{
	line: `printf '\033[?1049h\033[2J\033[5;10H\033[1;44m%s\033[m\n' start''ed; while read -r l; do echo "<$l>"; done; printf '\033[?1049l'`, alternate: true,
	steps: []step{{"", "started"}, {"one\r", "<one>"}},
	quit:  "\x04",
}

// testTerminalPause: a program goes on in its terminal, which shows what it
// showed, to one who comes anew and to one who comes back.
func testTerminalPause(t *testing.T, h Harness) {
	b, ok := makeBed(t, h)
	if !ok {
		return
	}
	p := reader
	if isolates(t, h.Driver) {
		p = editor
	}
	term := shell(t, b.guest, "work")
	first := watch(t, b.guest, term.ID, sandbox.TerminalAttach{})
	first.shows(">")
	do(t, b.guest, term.ID, first, step{"export LC_ALL=C.UTF-8\r", "UTF-8\n>"})
	typeIn(t, b.guest, term.ID, p.line+"\r")
	for _, s := range p.steps {
		do(t, b.guest, term.ID, first, s)
	}
	settled(t, b.guest, term.ID, first)
	saved := b.pause(driver.KeepMemory)
	first.leave()
	want := first.sees()
	b.resume(saved)

	anew := watch(t, b.guest, term.ID, sandbox.TerminalAttach{})
	back := watch(t, b.guest, term.ID, sandbox.TerminalAttach{Resume: true, Offset: first.at})
	settled(t, b.guest, term.ID, anew, back)
	if got := anew.sees(); got != want || anew.at != first.at {
		t.Errorf("after the pause, at %d:\n%+v\nbefore, at %d:\n%+v", anew.at, got, first.at, want)
	}
	if back.seeds != 0 {
		t.Errorf("one who comes back got %d seeds", back.seeds)
	}
	keys := step{"two\r", "<two>"}
	if p.line == editor.line {
		keys = step{"oafter the pause\x1b", "after the pause"}
	}
	do(t, b.guest, term.ID, anew, keys)
	same(t, b.guest, term.ID, "after the pause", anew)
	typeIn(t, b.guest, term.ID, p.quit)
	anew.prompts()
	do(t, b.guest, term.ID, anew, step{"echo al''ive\r", "\nalive\n>"})
	anew.leave()
	back.leave()
	b.end()
}
