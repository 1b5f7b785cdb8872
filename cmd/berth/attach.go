package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
)

// attachment joins this program's streams to one process in a sandbox.
type attachment struct {
	client *client.Client
	id     string
	in     io.Reader // nil: the process reads an end of file
	out    io.Writer
	err    io.Writer
}

// sendsInput reports whether standard input goes to the command: a pipe or a
// file does, a terminal only when asked for.
func (p *program) sendsInput(interactive bool) bool {
	f, isFile := p.in.(*os.File)
	return interactive || !isFile || !term.IsTerminal(int(f.Fd()))
}

// execAttached runs the command that start starts with this program's streams
// and ends as it ends.
func (p *program) execAttached(ctx context.Context, c *client.Client, id string, stdin bool, start starter) error {
	signalIgnoreBrokenPipe()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(signals)

	events, err := start(ctx)
	if err != nil {
		return err
	}
	defer events.Close()
	a := &attachment{client: c, id: id, out: p.out, err: p.err}
	if stdin {
		a.in = p.in
	}
	exit, err := a.follow(ctx, cancel, events, signals)
	if err != nil {
		return err
	}
	if exit.Restarted != "" {
		fmt.Fprintf(p.err, "berth: %s; the session goes on with another\n", printable(exit.Restarted))
	}
	return exitOf(exit)
}

// starter starts a command and gives what it does.
type starter func(context.Context) (sandbox.Events, error)

// follow copies what the process does until it has ended. The first event
// starts the flow of input and signals.
func (a *attachment) follow(ctx context.Context, cancel context.CancelCauseFunc, events sandbox.Events, signals <-chan os.Signal) (*sandbox.Exit, error) {
	for {
		event, err := events.Recv()
		switch {
		case err != nil:
			return nil, ended(ctx, err, endsWithStream)
		case event.Started != nil:
			if a.in != nil {
				// Left behind when the process ends first: a read of standard
				// input cannot be called back, and the program ends now anyway.
				go a.sendInput(ctx, cancel, event.Started.ID)
			}
			go a.forwardSignals(ctx, cancel, event.Started.ID, signals)
		case event.Exit != nil:
			return event.Exit, nil
		case event.Missed > 0:
			return nil, sandbox.Errorf("exec", sandbox.Internal, "%d bytes of %s were lost", event.Missed, event.Stream)
		case len(event.Data) > 0:
			if err := a.write(event); err != nil {
				return nil, err
			}
		}
	}
}

// endsWithStream is the hint of every break between here and the command.
const endsWithStream = "the command has ended with its stream; exec -d leaves one running without"

// ended explains the end of a stream that gave no exit: by this program's own
// doing, or with a hint.
func ended(ctx context.Context, err error, hint string) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, io.EOF) {
		err = sandbox.Errorf("read stream", sandbox.Unavailable, "it ended before the command did")
	}
	return &sandbox.Error{Op: "follow process", Err: err, Hint: hint}
}

// write passes one piece of output on. A reader that has gone ends the program
// without a word, as it ends any filter.
func (a *attachment) write(event sandbox.Event) error {
	w := a.out
	if event.Stream == sandbox.Stderr {
		w = a.err
	}
	_, err := w.Write(event.Data)
	switch {
	case errors.Is(err, unix.EPIPE), errors.Is(err, io.ErrClosedPipe):
		return &exitError{code: exitBrokenPipe}
	case err != nil:
		return &sandbox.Error{Op: "write " + string(event.Stream), Kind: sandbox.Internal, Err: err}
	}
	return nil
}

// sendInput feeds the process until standard input ends or the process no
// longer reads. Any other failure ends the whole command.
func (a *attachment) sendInput(ctx context.Context, cancel context.CancelCauseFunc, process string) {
	err := a.client.Input(ctx, a.id, process, a.in)
	if err == nil {
		err = a.client.CloseInput(ctx, a.id, process)
	}
	switch sandbox.KindOf(err) {
	case "", sandbox.Conflict, sandbox.NotFound:
		return // the process closed its input, or has ended: its exit tells all
	}
	cancel(&sandbox.Error{Op: "follow process", Err: err, Hint: endsWithStream})
}

// forwardSignals sends every signal this program gets to the process. One who
// keeps interrupting gets the terminal back: the stream closes, and with it the
// process ends.
func (a *attachment) forwardSignals(ctx context.Context, cancel context.CancelCauseFunc, process string, signals <-chan os.Signal) {
	interrupts := 0
	for {
		select {
		case <-ctx.Done():
			return
		case s := <-signals:
			if s == syscall.SIGINT {
				interrupts++
			}
			if interrupts >= interruptsToQuit {
				cancel(&exitError{code: exitInterrupted})
				return
			}
			err := a.client.Signal(ctx, a.id, process, unix.SignalName(s.(syscall.Signal)))
			if k := sandbox.KindOf(err); err != nil && k != sandbox.NotFound && k != sandbox.Conflict {
				cancel(&sandbox.Error{Op: "follow process", Err: err, Hint: endsWithStream})
				return
			}
		}
	}
}

// exitOf turns a process's end into this program's.
func exitOf(exit *sandbox.Exit) error {
	switch {
	case exit.Error != "":
		return sandbox.Errorf("exec", sandbox.Internal, "%s", exit.Error)
	case exit.TimedOut:
		return &exitError{code: exitTimeout}
	case exit.Code != 0:
		return &exitError{code: exit.Code}
	}
	return nil
}
