package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/berth-dev/berth/screen"
	"github.com/berth-dev/berth/test/rig"
)

// TestShellFake drives "berth shell" from a terminal, on the fake driver.
func TestShellFake(t *testing.T) { shells(t, "fake") }

// TestShellGVisor does it on real sandboxes.
func TestShellGVisor(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real sandboxes need root; nothing of gVisor is tested by this run")
	}
	shells(t, "gvisor")
}

func shells(t *testing.T, driver string) {
	if only := os.Getenv("BERTH_TEST_DRIVER"); only != "" && only != driver {
		t.Skipf("SKIPPED: BERTH_TEST_DRIVER asks for %s alone", only)
	}
	s := &suite{driver: driver, berth: binary(t)}
	s.small = smallArchive(t)
	data := t.TempDir()
	if err := rig.LinkTree(filepath.Join(s.makeSeed(t), "templates"), filepath.Join(data, "templates")); err != nil {
		t.Fatal(err)
	}
	i := &instance{suite: s, data: data, log: filepath.Join(t.TempDir(), "server.log")}
	if err := i.start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := i.clear(); err != nil {
			t.Errorf("%v\n%s", err, tail(i.log))
		}
	}()
	h := &shellTest{t: t, i: i, relay: newRelay(t, strings.TrimPrefix(i.url, "http://"))}
	h.env = append(os.Environ(), "BERTH_URL=http://"+h.relay.address(), "BERTH_DATA="+data)
	h.id = strings.TrimSpace(h.run("", "create"))
	h.comeAndGo()
	h.breaks()
	h.codes()
	h.pipes()
}

// shellTest is one sandbox and what reaches it.
type shellTest struct {
	t     *testing.T
	i     *instance
	relay *relay
	env   []string
	id    string
}

// run runs the program without a terminal.
func (h *shellTest) run(input string, args ...string) string {
	h.t.Helper()
	out, code := h.try(input, args...)
	if code != 0 {
		h.t.Fatalf("berth %q: code %d\n%s", args, code, out)
	}
	return out
}

func (h *shellTest) try(input string, args ...string) (string, int) {
	h.t.Helper()
	cmd := exec.Command(h.i.suite.berth, args...)
	cmd.Env, cmd.Stdin = h.env, strings.NewReader(input)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		h.t.Fatal(err)
	}
	if errs.Len() > 0 {
		h.t.Logf("berth %q: %s", args, &errs)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// window is a person's terminal in which the program runs.
type window struct {
	t      *testing.T
	cmd    *exec.Cmd
	master *os.File
	drawn  chan struct{} // closed when nothing will come any more

	mu     sync.Mutex
	screen *screen.Screen
}

const plainShell = "exec env PS1='> ' sh -i"

// open starts "berth shell" in a new window of 90 by 30.
func (h *shellTest) open(args ...string) *window {
	h.t.Helper()
	cmd := exec.Command(h.i.suite.berth, append([]string{"shell", h.id}, args...)...)
	cmd.Env = h.env
	master, err := pty.StartWithSize(cmd, &pty.Winsize{Cols: 90, Rows: 30})
	if err != nil {
		h.t.Fatal(err)
	}
	w := &window{t: h.t, cmd: cmd, master: master, drawn: make(chan struct{}), screen: screen.New(90, 30)}
	h.t.Cleanup(func() { cmd.Process.Kill(); master.Close() })
	go func() {
		defer close(w.drawn)
		buf := make([]byte, 32<<10)
		for {
			n, err := master.Read(buf)
			w.mu.Lock()
			w.screen.Write(buf[:n])
			w.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return w
}

func (w *window) text() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimRight(strings.Join(w.screen.Text(), "\n"), "\n")
}

func (w *window) shows(what string) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); !strings.Contains(w.text(), what); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("never shows %q:\n%s", what, w.text())
		}
	}
}

func (w *window) types(keys string) {
	w.t.Helper()
	if _, err := io.WriteString(w.master, keys); err != nil {
		w.t.Fatal(err)
	}
}

// ends waits for the program's end and holds the window to what it was.
func (w *window) ends(code int) {
	w.t.Helper()
	bell := time.AfterFunc(time.Minute, func() { w.cmd.Process.Kill() })
	defer bell.Stop()
	err := w.cmd.Wait()
	<-w.drawn
	if got := w.cmd.ProcessState.ExitCode(); got != code {
		w.t.Fatalf("it ended with %d (%v), want %d:\n%s", got, err, code, w.text())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, _, visible := w.screen.Cursor(); w.screen.Alternate() || !visible {
		w.t.Error("the window is left in a program's state")
	}
}

// comeAndGo: a terminal that is left is there again, as it was, at any size.
func (h *shellTest) comeAndGo() {
	w := h.open("--name", "work", "--cmd", plainShell)
	w.shows(">")
	w.types("stty size\r")
	w.shows("30 90")
	if err := pty.Setsize(w.master, &pty.Winsize{Cols: 70, Rows: 20}); err != nil {
		h.t.Fatal(err)
	}
	w.mu.Lock()
	w.screen.Resize(70, 20)
	w.mu.Unlock()
	w.types("while [ \"$(stty size)\" != '20 70' ]; do sleep 0.05; done; echo 'resi''zed'\r")
	w.shows("resized")
	w.types(`printf '\033[?1049h\033[2J\033[5;5H\033[31mpicture\033[m\033[?25l'; cat >/dev/null; printf '\033[?1049l\033[?25h'` + "\r")
	w.shows("picture")
	w.types("\x1c")
	w.ends(0)
	w.shows("detached from work")

	w = h.open("--name", "work")
	w.shows("picture")
	if w.mu.Lock(); !w.screen.Alternate() {
		h.t.Error("the other screen is not shown")
	}
	w.mu.Unlock()
	other := h.open("--name", "work")
	other.shows("picture")
	w.types("\x04") // ends cat
	for _, each := range []*window{w, other} {
		each.shows("resized") // the main screen is back, in both
	}
	other.types("\x1b[92;5u") // the key that detaches, as some terminals send it
	other.ends(0)
	w.types("exit 3\r")
	w.ends(3)
}

// breaks: a connection that breaks is made again, and goes on where it was.
func (h *shellTest) breaks() {
	w := h.open("--new", "--cmd", plainShell)
	w.shows(">")
	w.types("for i in 1 2 3 4 5 6 7 8 9 10; do echo line $i; sleep 0.3; done; echo 'a''ll'\r")
	w.shows("line 2")
	h.relay.cut()
	w.shows("line 4")
	h.relay.cut()
	w.shows("all")
	var want []string
	for i := range 10 {
		want = append(want, fmt.Sprintf("line %d", i+1))
	}
	if !strings.Contains(w.text(), strings.Join(want, "\n")) {
		h.t.Errorf("not all lines, once each:\n%s", w.text())
	}
	w.types("exit\r")
	w.ends(0)
}

// codes: however it ends, the code says so and the window is whole.
func (h *shellTest) codes() {
	for _, c := range []struct {
		what unix.Signal
		code int
	}{{unix.SIGTERM, 143}, {unix.SIGHUP, 129}, {unix.SIGINT, 130}} {
		w := h.open("--name", "codes", "--cmd", plainShell)
		w.shows(">")
		if state, err := term.GetState(int(w.master.Fd())); err != nil || state == nil {
			h.t.Fatal(err)
		}
		if !isRaw(h.t, w.master) {
			h.t.Error("the keys do not pass unchanged")
		}
		if err := w.cmd.Process.Signal(c.what); err != nil {
			h.t.Fatal(err)
		}
		w.ends(c.code)
	}
	w := h.open("--new", "--cmd", "kill -9 $$")
	w.ends(137)
	for _, bad := range [][]string{{"--name", "a/b"}, {"--name", "codes", "--new"}, {"--new", "--user", "nobody-at-all-" + h.i.suite.driver}} {
		if bad[0] == "--new" && h.i.suite.driver == "fake" {
			continue // its processes are all this user's
		}
		w := h.open(bad...)
		w.ends(125)
	}
}

// isRaw reports whether the terminal passes keys on unchanged.
func isRaw(t *testing.T, f *os.File) bool {
	t.Helper()
	attrs, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return attrs.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0
}

// pipes: without a terminal, what comes is typed and what is printed comes out.
func (h *shellTest) pipes() {
	out, code := h.try("echo sum:$((20+22))\nexit 6\n", "shell", h.id, "--cmd", plainShell)
	if code != 6 || !strings.Contains(out, "sum:42") || strings.Contains(out, "\x1b[2J") {
		h.t.Errorf("code %d: %q", code, out)
	}
	out, code = h.try("echo sum:$((21+22))", "shell", h.id, "--cmd", plainShell)
	if code != 0 || !strings.Contains(out, "sum:43") {
		h.t.Errorf("code %d: %q", code, out)
	}
	if _, code = h.try("", "shell"); code != 125 {
		h.t.Errorf("without an id: %d", code)
	}
}

// relay passes connections on to the server, and cuts them when told.
type relay struct {
	l  net.Listener
	mu sync.Mutex
	on []net.Conn
}

func newRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	r := &relay{l: l}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			r.mu.Lock()
			r.on = append(r.on, in, out)
			r.mu.Unlock()
			for _, ends := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(ends[1], ends[0])
					in.Close()
					out.Close()
				}()
			}
		}
	}()
	return r
}

func (r *relay) address() string { return r.l.Addr().String() }

func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.on {
		c.Close()
	}
	r.on = nil
}
