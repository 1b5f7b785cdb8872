package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/screen"
)

// watcher is a client with a terminal emulator of its own.
type watcher struct {
	t      *testing.T
	cancel context.CancelFunc
	gone   chan struct{}

	mu     sync.Mutex
	screen *screen.Screen
	first  sandbox.Terminal
	at     int64                // bytes of output that it has
	seed   sandbox.TerminalSeed // Bytes: that are still to come
	seeds  int
	raw    bytes.Buffer
	exit   *sandbox.Exit
	err    error
}

// watch attaches to a terminal and draws what comes until the end of the test.
func watch(t *testing.T, c *guestclient.Client, key string, at sandbox.TerminalAttach) *watcher {
	t.Helper()
	ctx, cancel := context.WithCancel(within(t))
	ev, err := c.AttachTerminal(ctx, key, at)
	if err != nil {
		cancel()
		t.Fatalf("attach: %v", err)
	}
	w := &watcher{t: t, cancel: cancel, gone: make(chan struct{}), screen: screen.New(80, 24), at: at.Offset}
	go func() {
		defer close(w.gone)
		defer ev.Close()
		for {
			e, err := ev.Recv()
			if err != nil {
				w.mu.Lock()
				if !errors.Is(err, io.EOF) {
					w.err = err
				}
				w.mu.Unlock()
				return
			}
			w.take(e)
		}
	}()
	t.Cleanup(w.leave)
	return w
}

func (w *watcher) take(e sandbox.TerminalEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case e.Attached != nil:
		w.first = *e.Attached
		w.screen.Resize(e.Attached.Cols, e.Attached.Rows)
	case e.Seed != nil:
		w.screen.Resize(e.Seed.Cols, e.Seed.Rows)
		w.seed = *e.Seed
		w.seeds++
	case e.Resized != nil:
		w.screen.Resize(e.Resized.Cols, e.Resized.Rows)
	case e.Exit != nil:
		w.exit = e.Exit
	default:
		w.screen.Write(e.Data)
		if e.Seeding {
			if w.seed.Bytes -= int64(len(e.Data)); w.seed.Bytes == 0 {
				w.at = w.seed.Offset
			}
		} else {
			w.at = e.Offset + int64(len(e.Data))
			w.raw.Write(e.Data)
		}
	}
}

// leave detaches.
func (w *watcher) leave() {
	w.cancel()
	<-w.gone
}

// text is what is on its screen, without the empty rows at the end.
func (w *watcher) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimRight(strings.Join(w.screen.Text(), "\n"), "\n")
}

// state is its screen with all that belongs to it, as bytes.
func (w *watcher) state() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.screen.Seed(false))
}

// shows waits until its screen holds a text.
func (w *watcher) shows(what string) {
	w.t.Helper()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("the screen:\n%s", w.text())
		}
	}()
	eventually(w.t, fmt.Sprintf("the screen shows %q", what), func() bool { return strings.Contains(w.text(), what) })
}

// shell opens a terminal with a plain shell whose prompt is "> ".
func shell(t *testing.T, c *guestclient.Client, name string) sandbox.Terminal {
	t.Helper()
	term, made, err := c.OpenTerminal(within(t), sandbox.TerminalRequest{Name: name, Argv: []string{"sh", "-i"}, Env: map[string]string{"PS1": "> ", "ENV": ""}})
	if err != nil || !made {
		t.Fatalf("open: %v %v", made, err)
	}
	return term
}

func typeIn(t *testing.T, c *guestclient.Client, key, text string) {
	t.Helper()
	if err := c.TerminalInput(within(t), key, []byte(text)); err != nil {
		t.Fatalf("type %q: %v", text, err)
	}
}

// testTerminals: a program finds a real terminal, and those who look see it.
func testTerminals(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	term := shell(t, c, "")
	if term.Name != sandbox.DefaultTerminal || term.Cols != 80 || term.Rows != 24 || term.PID < 2 {
		t.Errorf("description: %+v", term)
	}
	again, made, err := c.OpenTerminal(within(t), sandbox.TerminalRequest{Name: "main", Cols: 10, Rows: 10})
	if err != nil || made || again.ID != term.ID || again.Cols != 80 {
		t.Errorf("opened again: %+v %v %v", again, made, err)
	}
	_, _, err = c.OpenTerminal(within(t), sandbox.TerminalRequest{Name: "main", New: true})
	wantKind(t, "a second of the name", err, sandbox.Conflict)

	w := watch(t, c, "main", sandbox.TerminalAttach{Cols: 100, Rows: 30})
	w.shows(">")
	typeIn(t, c, term.ID, "stty size; tty; echo $TERM\r")
	w.shows("30 100")
	w.shows("/dev/pts/")
	w.shows("xterm-256color")

	// The size: the last one set counts, for all, and the program is told.
	typeIn(t, c, term.ID, "sh -c 'trap \"stty size; exit\" WINCH; echo wait\"\"ing; while :; do sleep 0.1; done'\r")
	w.shows("waiting")
	if err := c.ResizeTerminal(within(t), term.ID, 90, 20); err != nil {
		t.Fatal(err)
	}
	w.shows("20 90")
	if cols, rows := w.size(); cols != 90 || rows != 20 {
		t.Errorf("the client was told %d by %d", cols, rows)
	}
	for _, size := range [][2]int{{0, 0}, {65535, 65535}, {80, 0}, {-1, 24}} {
		wantKind(t, "a size", c.ResizeTerminal(within(t), term.ID, size[0], size[1]), sandbox.Invalid)
	}

	// Jobs: the keyboard's signals and ours reach the group in the foreground.
	typeIn(t, c, term.ID, "sleep 1000; echo left:$?\r")
	foreground(t, c, term, "sleep")
	typeIn(t, c, term.ID, "\x03")
	typeIn(t, c, term.ID, "echo code:$?\r")
	w.shows("code:130")
	typeIn(t, c, term.ID, "sleep 1001\r")
	foreground(t, c, term, "sleep")
	typeIn(t, c, term.ID, "\x1a")
	w.shows("topped") // "Stopped", by some shells "[1] + Stopped"
	typeIn(t, c, term.ID, "fg\r")
	foreground(t, c, term, "sleep")
	if err := c.SignalTerminal(within(t), term.ID, "SIGTERM"); err != nil {
		t.Fatal(err)
	}
	typeIn(t, c, term.ID, "echo then:$?\r")
	w.shows("then:143")
	wantKind(t, "no signal", c.SignalTerminal(within(t), term.ID, "SIGNOTHING"), sandbox.Invalid)

	typeIn(t, c, term.ID, "exit 7\r")
	<-w.gone
	if w.exit == nil || w.exit.Code != 7 || w.err != nil {
		t.Errorf("exit %+v, %v", w.exit, w.err)
	}
	list, err := c.Terminals(within(t))
	if err != nil || len(list) != 1 || list[0].Exit == nil || list[0].Exit.Code != 7 || list[0].Ended.IsZero() {
		t.Errorf("list: %+v %v", list, err)
	}
	wantKind(t, "typing into what has ended", c.TerminalInput(within(t), term.ID, []byte("x")), sandbox.Conflict)
	wantKind(t, "signal to what has ended", c.SignalTerminal(within(t), term.ID, "SIGINT"), sandbox.Conflict)
	wantKind(t, "size of what has ended", c.ResizeTerminal(within(t), term.ID, 80, 25), sandbox.Conflict)
	wantKind(t, "none", c.SignalTerminal(within(t), "t999", "SIGINT"), sandbox.NotFound)
	late := watch(t, c, term.ID, sandbox.TerminalAttach{})
	<-late.gone
	if late.exit == nil || !strings.Contains(late.text(), "then:143") {
		t.Errorf("looking at what has ended: %+v %q", late.exit, late.text())
	}
	next := shell(t, c, "main")
	if next.ID == term.ID {
		t.Errorf("the id %s came twice", next.ID)
	}
	stop(t, m)
}

func (w *watcher) size() (int, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.screen.Size()
}

// foreground waits until a terminal's shell runs a program of a name, and that it
// is not stopped.
func foreground(t *testing.T, c *guestclient.Client, shell sandbox.Terminal, name string) {
	t.Helper()
	line := fmt.Sprintf(`for s in /proc/[0-9]*/stat; do { read -r p n st pp rest < $s && [ "$n $pp" = "(%s) %d" ] && [ $st != T ] && [ $st != Z ] && echo yes; } 2>/dev/null; done; true`, name, shell.PID)
	eventually(t, name+" runs", func() bool { return strings.Contains(output(t, c, line), "yes") })
}

// drawings set up screens with all that a screen can hold. Each ends at rest.
var drawings = []string{
	`printf '\033[1;31mred\033[0m \033[38;5;208mpalette\033[0m \033[48;2;1;2;3mdirect\033[0m \033[4:3mcurly\033[0m\n'`,
	`i=0; while [ $i -lt 60 ]; do echo "line $i"; i=$((i+1)); done`,
	`printf '\346\227\245\346\234\254\350\252\236 e\314\201 \033(0lqk\033(B\n'`,
	`printf '\033[3;5r\033[?1h\033[?2004h\033]2;a title\007\033[5 q\033[10;10H\0337'`,
	`printf '\033[r\033[?1049h\033[2J\033[3;4H\033[7malternate\033[0m\033[?25l\033[?1002h\033[?1006h'`,
	`printf '\033[?1049l\033[?25h\033[?1002l'`,
	`printf '\033[44m\033[2J\033[H\033[K%s\033[m' 'blue all over, and a line that is longer than eighty columns so that it wraps around the edge'`,
}

// testTerminalScreens: whoever comes, at whatever time, sees the same screen.
func testTerminalScreens(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	term := shell(t, c, "art")
	first := watch(t, c, term.ID, sandbox.TerminalAttach{})
	second := watch(t, c, term.ID, sandbox.TerminalAttach{})
	list, err := c.Terminals(within(t))
	if err != nil || len(list) != 1 || list[0].Clients != 2 {
		t.Errorf("two clients: %+v %v", list, err)
	}
	for i, d := range drawings {
		mark := fmt.Sprintf("mark%d", i)
		typeIn(t, c, term.ID, d+"; printf '<%s>' "+mark+"\r")
		for _, w := range []*watcher{first, second} {
			w.shows("<" + mark + ">>") // and the prompt
		}
		third := watch(t, c, term.ID, sandbox.TerminalAttach{})
		settled(t, c, term.ID, first, second, third)
		want := first.state()
		if got := second.state(); got != want {
			t.Fatalf("%s: the second sees\n%q, the first\n%q", d, got, want)
		}
		if got := third.state(); got != want {
			t.Fatalf("%s: one who comes later sees\n%q, the first\n%q", d, got, want)
		}
		if third.seeds != 1 {
			t.Errorf("%s: %d seeds", d, third.seeds)
		}
		third.leave()
	}
	eventually(t, "the title is known", func() bool {
		list, err := c.Terminals(within(t))
		return err == nil && list[0].Title == "a title" && list[0].Clients == 2
	})

	// One who comes back with an offset gets what it lacks, without a seed.
	second.leave()
	at := second.at
	typeIn(t, c, term.ID, "printf '<%s>' back\r")
	first.shows("<back>>")
	back := watch(t, c, term.ID, sandbox.TerminalAttach{Resume: true, Offset: at})
	settled(t, c, term.ID, first, back)
	if back.seeds != 0 || !bytes.Contains(back.raw.Bytes(), []byte("<back>")) {
		t.Errorf("back: %d seeds, %q", back.seeds, back.raw.Bytes())
	}
	_, err = c.AttachTerminal(within(t), term.ID, sandbox.TerminalAttach{Resume: true, Offset: 1 << 40})
	wantKind(t, "an offset from the future", err, sandbox.Invalid)
	if err := c.CloseTerminal(within(t), term.ID); err != nil {
		t.Fatal(err)
	}
	<-first.gone
	if first.exit == nil {
		t.Errorf("closed: %v", first.err)
	}
	if list, err := c.Terminals(within(t)); err != nil || len(list) != 0 {
		t.Errorf("after the close: %+v %v", list, err)
	}
	stop(t, m)
}

// settled waits until the watchers have all that the terminal has printed.
func settled(t *testing.T, c *guestclient.Client, id string, all ...*watcher) {
	t.Helper()
	eventually(t, "everyone has everything", func() bool {
		list, err := c.Terminals(within(t))
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list, func(t sandbox.Terminal) bool { return t.ID == id })
		return !slices.ContainsFunc(all, func(w *watcher) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.at != list[i].Offset
		})
	})
}

// testTerminalFlood: a reader that sleeps never holds a program up, and sees the
// screen of now when it wakes.
func testTerminalFlood(t *testing.T, h Harness) {
	m := create(t, h.Driver, h.Spec())
	c := client(t, m)
	term := shell(t, c, "flood")
	asleep, err := c.AttachTerminal(within(t), term.ID, sandbox.TerminalAttach{})
	if err != nil {
		t.Fatal(err)
	}
	defer asleep.Close()
	typeIn(t, c, term.ID, "yes 'some text that comes again and again' | head -c 50000000; echo; echo 'flood''ed'\r")
	awake := watch(t, c, term.ID, sandbox.TerminalAttach{})
	awake.shows("flooded")
	typeIn(t, c, term.ID, "exit\r")
	<-awake.gone

	w := &watcher{t: t, screen: screen.New(80, 24)}
	for w.exit == nil {
		e, err := asleep.Recv()
		if err != nil {
			t.Fatal(err)
		}
		w.take(e)
	}
	if w.text() != awake.text() || w.seeds < 2 {
		t.Errorf("%d seeds; it sees\n%s\nthe other\n%s", w.seeds, w.text(), awake.text())
	}

	// Sizes and signals while nobody reads.
	busy := shell(t, c, "busy")
	typeIn(t, c, busy.ID, "yes\r")
	for i := range 300 {
		if err := c.ResizeTerminal(within(t), busy.ID, 1+i*37%1000, 1+i*31%500); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.CloseTerminal(within(t), busy.ID); err != nil {
		t.Fatal(err)
	}
	stop(t, m)
}
