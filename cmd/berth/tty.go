package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/term"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/screen"
)

// tty is the terminal that this program runs in.
type tty struct {
	in, out *os.File
	mu      sync.Mutex
	before  *term.State // nil while it is as it was found
}

// ownTerminal is the terminal of this program, or nil unless it both reads from
// one and writes to one.
func (p *program) ownTerminal() *tty {
	in, okIn := p.in.(*os.File)
	out, okOut := p.out.(*os.File)
	if !okIn || !okOut || !term.IsTerminal(int(in.Fd())) || !term.IsTerminal(int(out.Fd())) {
		return nil
	}
	return &tty{in: in, out: out}
}

// size is the terminal's, within what a sandbox's takes; 0 for one that tells none.
func (t *tty) size() (cols, rows int) {
	cols, rows, err := term.GetSize(int(t.out.Fd()))
	if err != nil || cols < 1 || rows < 1 {
		return 0, 0
	}
	return min(cols, sandbox.MaxTerminalCols), min(rows, sandbox.MaxTerminalRows)
}

// raw passes every key on, and scrolls what is shown out of the way.
func (t *tty) raw() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	before, err := term.MakeRaw(int(t.in.Fd()))
	if err != nil {
		return &sandbox.Error{Op: "take the keyboard", Kind: sandbox.Internal, Err: err}
	}
	t.before = before
	_, rows := t.size()
	const keepTitle = "\x1b[22;0t"
	fmt.Fprintf(t.out, "%s\x1b[%d;1H%s", keepTitle, rows, bytes.Repeat([]byte("\n"), rows))
	return nil
}

// restore makes the terminal what it was. It may be called again, and at once
// from anywhere.
func (t *tty) restore() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.before == nil {
		return
	}
	const oldTitle = "\x1b[23;0t"
	_, _ = io.WriteString(t.out, screen.Leave+oldTitle+"\r\n") // it may have been closed
	_ = term.Restore(int(t.in.Fd()), t.before)
	t.before = nil
}

// guard restores the terminal before a panic of its goroutine ends the program.
// It is deferred.
func (t *tty) guard() {
	if p := recover(); p != nil {
		t.restore()
		panic(p)
	}
}

// detachKeys are what terminals send for Ctrl-\, whatever mode they are in.
var detachKeys = [][]byte{{0x1c}, []byte("\x1b[92;5u"), []byte("\x1b[27;5;92~")}

// beforeDetach is what was typed before the key that detaches, if that is there.
func beforeDetach(typed []byte) (rest []byte, detach bool) {
	for _, key := range detachKeys {
		if i := bytes.Index(typed, key); i >= 0 {
			typed, detach = typed[:i], true
		}
	}
	return typed, detach
}
