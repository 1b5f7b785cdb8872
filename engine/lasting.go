package engine

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Times of streams that outlast a pause.
const (
	lookAgain  = time.Second     // at a sandbox that runs and whose machine is not held yet
	loosenTime = 2 * time.Second // for a guest to let go of what its streams carry
	forgetTime = 5 * time.Second // for a process to end whose caller has gone
)

// lasting is a stream that a process ends with, and that outlasts pauses of its
// sandbox: it waits until that runs again, without waking it, and goes on where it
// was. The process lives on meanwhile, whether somebody waits for it or not.
type lasting struct {
	e      *Engine
	ctx    context.Context // the caller's, until Close
	cancel context.CancelFunc
	op     string
	id     sandbox.ID
	as     sandbox.Activity

	process string          // for Recv alone, as is at
	at      sandbox.Offsets // what has been given

	mu     sync.Mutex
	events sandbox.Events // of the machine that is, or was
	on     *live
	end    func() // of the activity
	over   bool   // the exit was given
	loose  bool   // the process has outlived a stream
}

// last makes a stream that was opened on a machine a lasting one.
func (e *Engine) last(ctx context.Context, op string, id sandbox.ID, as sandbox.Activity, events sandbox.Events, on *live, end func()) *lasting {
	l := &lasting{e: e, op: op, id: id, as: as, events: events, on: on}
	l.ctx, l.cancel = context.WithCancel(ctx)
	detach := context.AfterFunc(l.ctx, end)
	l.end = func() { detach(); end() }
	return l
}

// Recv returns the next event.
func (l *lasting) Recv() (sandbox.Event, error) {
	for {
		l.mu.Lock()
		events, on := l.events, l.on
		l.mu.Unlock()
		event, err := events.Recv()
		switch {
		case err == nil && l.note(event):
			return event, nil
		case err == nil: // the start, again
		case errors.Is(err, io.EOF), on.aside() != sandbox.Paused, l.process == "", l.ctx.Err() != nil:
			return event, err
		default:
			if err := l.goOn(); err != nil {
				return event, err
			}
		}
	}
}

// note keeps how far the stream is; false means that the event was given before.
func (l *lasting) note(event sandbox.Event) bool {
	at := &l.at.Stdout
	if event.Stream == sandbox.Stderr {
		at = &l.at.Stderr
	}
	switch {
	case event.Started != nil:
		again := l.process != ""
		l.process = event.Started.ID
		return !again
	case event.Exit != nil:
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
	default:
		*at = event.Offset + int64(len(event.Data)) + event.Missed
	}
	return true
}

// goOn attaches to the process again as soon as the sandbox runs.
func (l *lasting) goOn() error {
	l.mu.Lock()
	l.events.Close()
	l.end()
	l.loose = true
	l.mu.Unlock()
	beat := time.NewTicker(lookAgain)
	defer beat.Stop()
	for {
		_, grown := l.e.journal.stable()
		s, err := l.e.load(l.ctx, l.id)
		if err != nil {
			return fail(l.op, l.id, err)
		}
		switch {
		case s.State == sandbox.Running && s.Doing == nil:
			if done, err := l.attach(s); done || err != nil {
				return err
			}
		case s.Doing != nil:
		case s.State == sandbox.Paused:
			if err := l.e.mayWake(s); err != nil { // and so nothing else will
				return fail(l.op, l.id, &sandbox.Error{Kind: sandbox.Unavailable, Err: errors.New(s.spent()), Hint: sandbox.HintOf(err)})
			}
		case s.State == sandbox.Stopped:
			return fail(l.op, l.id, partedError(s.State))
		default:
			return fail(l.op, l.id, notRunning(s))
		}
		select {
		case <-grown:
		case <-beat.C:
		case <-l.ctx.Done():
			return fail(l.op, l.id, context.Cause(l.ctx))
		case <-l.e.ctx.Done():
			return fail(l.op, l.id, errClosing)
		}
	}
}

// attach takes the stream up on the machine that there is now; false means that
// there is none to be used yet.
func (l *lasting) attach(s *stored) (bool, error) {
	on := l.e.held(l.id)
	if on == nil {
		return false, nil
	}
	end, ok := on.begin(l.as, l.e.now)
	if !ok {
		return false, nil
	}
	events, err := stream(l.ctx, l.op, s, on, func() (sandbox.Events, error) { return on.guest.Attach(l.ctx, l.process, l.at) })
	if err != nil {
		end()
		if on.aside() == sandbox.Paused {
			return false, nil
		}
		return false, err
	}
	detach := context.AfterFunc(l.ctx, end)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events, l.on, l.end = events, on, func() { detach(); end() }
	return true, nil
}

// Close ends the stream and the process.
func (l *lasting) Close() error {
	l.cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.events.Close()
	l.end()
	if !l.over && (l.loose || l.on.loose.Load()) && l.process != "" && l.on == l.e.held(l.id) {
		l.over = true
		ctx, cancel := context.WithTimeout(l.e.ctx, forgetTime)
		defer cancel()
		_, _ = l.on.guest.Forget(ctx, l.process) // of a guest out of reach nothing can be had
	}
	return err
}

// loosen lets what runs in a machine outlive the streams that carry it, for a pause
// breaks them. A guest that does not answer loses what they carry, and nothing else.
func (l *live) loosen(ctx context.Context) {
	if !l.carries() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, loosenTime)
	defer cancel()
	if l.guest.Loosen(ctx) == nil {
		l.loose.Store(true)
	}
}
