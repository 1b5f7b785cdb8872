package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

const (
	rejoinTime   = time.Minute // of attempts to come back after a broken connection
	rejoinEvery  = 250 * time.Millisecond
	endOfInput   = "\x04"
	endOfInputIn = time.Second // between ends of input: whatever reads next gets one too
)

var errDetached = errors.New("detached")

// visit is this program's stay at one terminal.
type visit struct {
	p        *program
	client   *client.Client
	id       string
	terminal sandbox.Terminal
	made     bool // by us
	tty      *tty // nil: input is typed and output printed, with no screen

	conn   atomic.Pointer[client.TerminalConn] // nil while there is none
	at     int64                               // bytes of output that were shown
	placed bool                                // at is what the screen shows
	others atomic.Bool                         // someone has set another size
}

// run stays until the terminal ends, the key that detaches, or a signal.
func (s *visit) run(ctx context.Context) (err error) {
	signalIgnoreBrokenPipe()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGWINCH)
	defer signal.Stop(signals)

	// Without a screen there is no seed: all that a new terminal prints, or what
	// is printed from now on.
	s.placed = s.tty == nil
	if s.placed && !s.made {
		s.at = s.terminal.Offset
	}
	if err := s.join(ctx); err != nil {
		return err
	}
	if s.tty != nil {
		if err := s.tty.raw(); err != nil {
			return err
		}
		defer s.tty.restore()
	}
	go s.obey(ctx, cancel, signals)
	go s.typeInput(ctx, cancel)
	for {
		exit, err := s.show()
		switch {
		case exit != nil:
			return exitOf(exit)
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case sandbox.KindOf(err) != sandbox.Unavailable:
			return err
		}
		if err := s.rejoin(ctx, err); err != nil {
			return err
		}
	}
}

// join attaches where the screen stands.
func (s *visit) join(ctx context.Context) error {
	at := sandbox.TerminalAttach{Resume: s.placed, Offset: s.at}
	if !s.placed {
		at.Offset = 0
	}
	if s.tty != nil {
		at.Cols, at.Rows = s.tty.size()
	}
	conn, err := s.client.JoinTerminal(ctx, s.id, s.terminal.ID, at)
	if err != nil {
		return err
	}
	s.conn.Store(conn)
	return nil
}

// rejoin comes back after the connection broke.
func (s *visit) rejoin(ctx context.Context, why error) error {
	for end := time.Now().Add(rejoinTime); time.Now().Before(end); {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(rejoinEvery):
		}
		err := s.join(ctx)
		switch {
		case err == nil:
			return nil
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case sandbox.KindOf(err) != sandbox.Unavailable:
			return err
		}
		why = err
	}
	return why
}

// show prints what the terminal does until its exit, or until the connection
// breaks.
func (s *visit) show() (*sandbox.Exit, error) {
	conn := s.conn.Load()
	defer conn.Close()
	defer s.conn.Store(nil)
	var seeding int64
	for {
		e, err := conn.Recv()
		switch {
		case err != nil:
			return nil, err
		case e.Exit != nil:
			return e.Exit, nil
		case e.Seed != nil:
			s.at, s.placed, seeding = e.Seed.Offset, false, e.Seed.Bytes
		case e.Resized != nil:
			s.others.Store(s.tty != nil)
		case e.Seeding:
			seeding -= int64(len(e.Data))
			s.placed = seeding == 0
			if s.tty != nil {
				err = s.print(e.Data)
			}
		case len(e.Data) > 0:
			s.at += int64(len(e.Data))
			err = s.print(e.Data)
		}
		if err != nil {
			return nil, err
		}
	}
}

func (s *visit) print(b []byte) error {
	_, err := s.p.out.Write(b)
	switch {
	case errors.Is(err, unix.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return &exitError{code: exitBrokenPipe}
	case err != nil:
		return &sandbox.Error{Op: "write the screen", Kind: sandbox.Internal, Err: err}
	}
	return nil
}

// leave ends the stay: the cause first, then the connection that show waits on.
func (s *visit) leave(cancel context.CancelCauseFunc, why error) {
	cancel(why)
	if conn := s.conn.Load(); conn != nil {
		conn.Close()
	}
}

// obey passes the size on when it changes; any other signal ends the stay.
func (s *visit) obey(ctx context.Context, cancel context.CancelCauseFunc, signals <-chan os.Signal) {
	defer s.tty.guard()
	for {
		select {
		case <-ctx.Done():
			return
		case got := <-signals:
			if got != syscall.SIGWINCH {
				s.leave(cancel, &exitError{code: 128 + int(got.(syscall.Signal))})
				return
			}
			s.resize(ctx)
		}
	}
}

// resize gives the terminal this one's size.
func (s *visit) resize(ctx context.Context) {
	conn := s.conn.Load()
	if s.tty == nil || conn == nil {
		return // it is given when it is joined again
	}
	if cols, rows := s.tty.size(); cols > 0 {
		_ = conn.Resize(ctx, cols, rows) // a connection that breaks is show's to notice
	}
}

// typeInput types what standard input gives.
func (s *visit) typeInput(ctx context.Context, cancel context.CancelCauseFunc) {
	defer s.tty.guard()
	buf := make([]byte, 32<<10)
	last := byte('\n')
	for ctx.Err() == nil {
		n, err := s.p.in.Read(buf)
		typed, detach := buf[:n], false
		if s.tty != nil {
			typed, detach = beforeDetach(typed)
		}
		if len(typed) > 0 {
			last = typed[len(typed)-1]
			s.send(ctx, typed)
		}
		switch {
		case detach, err != nil && (s.tty != nil || !s.made):
			s.leave(cancel, errDetached)
			return
		case err != nil:
			s.endInput(ctx, last)
			return
		}
	}
}

// send types until it has been taken. One who types at a screen sees that the
// connection is broken, and what is typed then is lost.
func (s *visit) send(ctx context.Context, typed []byte) {
	for ctx.Err() == nil {
		conn := s.conn.Load()
		if conn != nil {
			if s.others.Swap(false) {
				s.resize(ctx) // whoever types sees it whole
			}
			if conn.Input(ctx, typed) == nil {
				return
			}
		}
		if s.tty != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(rejoinEvery):
		}
	}
}

// endInput gives the end of the input to whatever reads, as a pipe would: again
// and again, as a terminal's end is good for one reader.
func (s *visit) endInput(ctx context.Context, last byte) {
	if last != '\n' {
		s.send(ctx, []byte("\n"))
	}
	for ctx.Err() == nil {
		s.send(ctx, []byte(endOfInput))
		select {
		case <-ctx.Done():
		case <-time.After(endOfInputIn):
		}
	}
}
