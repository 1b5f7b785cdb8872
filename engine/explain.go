package engine

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// endTime is how long a guest that is out of reach may turn out to be one that
// has ended: a broken connection is often seen before the end of its machine.
const endTime = time.Second

// explain finds the reason behind a guest that is out of reach: its machine may
// have ended.
func explain(ctx context.Context, op string, s *stored, l *live, err error) error {
	if err == nil {
		return nil
	}
	if sandbox.KindOf(err) == sandbox.Unavailable && ctx.Err() == nil {
		soon, cancel := context.WithTimeout(ctx, endTime)
		defer cancel()
		switch exit, werr := l.machine.Wait(soon); {
		case werr != nil: // it lives; the error stands as it is
		case exit.Asked && l.aside() != "":
			err = partedError(l.aside())
		case exit.Asked:
			err = &sandbox.Error{Kind: sandbox.NotFound, Err: sandbox.ErrRemoved, Hint: "berth ls lists those that are left"}
		default:
			ended := *s
			ended.State, ended.Reason = sandbox.Failed, exit.Reason
			err = notRunning(&ended)
		}
	}
	return fail(op, s.ID, err)
}

// explained is a stream whose break is explained.
type explained struct {
	sandbox.Events
	why func(error) error
}

func (e *explained) Recv() (sandbox.Event, error) {
	event, err := e.Events.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		err = e.why(err)
	}
	return event, err
}

// streaming opens a stream of events in a sandbox, which it wakes. The stream is
// an activity until it is closed or ctx ends. With own set, the process that it
// tells of ends with it, and neither ends with a pause. Any other breaks then: its
// reader can come back at any time, and decides whether that wakes the sandbox.
func (e *Engine) streaming(ctx context.Context, op, id string, a sandbox.Activity, own bool, open func(*stored, *live) (sandbox.Events, error)) (sandbox.Events, error) {
	s, l, end, err := e.using(ctx, id, a)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	events, err := stream(ctx, op, s, l, func() (sandbox.Events, error) { return open(s, l) })
	if err != nil {
		end()
		return nil, err
	}
	if own {
		return e.last(ctx, op, s.ID, a, events, l, end), nil
	}
	return &active{events, end, context.AfterFunc(ctx, end)}, nil
}

// active is a stream whose end ends an activity.
type active struct {
	sandbox.Events
	end    func()
	detach func() bool
}

func (a *active) Close() error {
	err := a.Events.Close()
	a.detach()
	a.end()
	return err
}

// stream opens a stream of events in a running sandbox.
func stream(ctx context.Context, op string, s *stored, l *live, open func() (sandbox.Events, error)) (sandbox.Events, error) {
	why := func(err error) error { return explain(ctx, op, s, l, err) }
	events, err := open()
	if err != nil {
		return nil, why(err)
	}
	return &explained{events, why}, nil
}

// aside is the state as which the machine was put aside, or "".
func (l *live) aside() sandbox.State {
	s, _ := l.parted.Load().(sandbox.State)
	return s
}

// partedError is what those see who used a machine when it was put aside.
func partedError(to sandbox.State) error {
	hint := "call again: that wakes it; attach to a process with the offsets you have"
	if to == sandbox.Stopped {
		hint = "call again: that starts it anew; its processes ended"
	}
	return &sandbox.Error{Kind: sandbox.Unavailable, Err: errors.New("the sandbox was " + string(to)), Hint: hint}
}
