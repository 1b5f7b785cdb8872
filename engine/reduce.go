package engine

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// reduce stops a sandbox that is paused: its memory is given up, and nothing of it
// runs for that. The caller holds its lock.
func (e *Engine) reduce(ctx context.Context, s *stored, d driver.Reducer, reason string) (err error) {
	t := e.timed("stop")
	defer t.end(&err)
	give, err := e.slots.take(ctx)
	if err != nil {
		return err
	}
	defer give()
	t.stage("queue")
	lessen, release, err := e.reduction(ctx, s, d)
	if err != nil {
		return err
	}
	defer release()
	t.stage("fetch")
	err = e.intend(ctx, s, doing{Verb: "reduce", Aside: sandbox.Paused, Reason: reason})
	if err == nil {
		err = e.reduced(ctx, s, reason, lessen)
	}
	if err == nil {
		return nil
	}
	if aerr := e.again(ctx, s); aerr != nil {
		return fmt.Errorf("%w (and its undoing: %w)", err, aerr)
	}
	if s.State == sandbox.Stopped {
		return nil
	}
	return err
}

// reduction is the driver's part of a reduce: of what a pause has kept, or of the
// snapshot that the sandbox waits at.
func (e *Engine) reduction(ctx context.Context, s *stored, d driver.Reducer) (lessen func(context.Context) ([]byte, error), release func(), err error) {
	spec, err := e.spec(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	if s.From == "" {
		saved, err := e.records.Get(ctx, savedKey(s.ID))
		if err != nil {
			return nil, nil, fail("find what was kept", "", err)
		}
		return func(ctx context.Context) ([]byte, error) { return d.Reduce(ctx, spec, saved.Value) }, func() {}, nil
	}
	sh, err := e.loadShot(ctx, s.Account, s.From)
	if err != nil {
		return nil, nil, &sandbox.Error{Op: "find its snapshot", Kind: sandbox.Internal, Err: err}
	}
	dir, release, err := e.fetchFor(ctx, sh, s)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) ([]byte, error) { return d.ReduceFrom(ctx, spec, dir) }, release, nil
}

// reduced calls the driver and writes the outcome down.
func (e *Engine) reduced(ctx context.Context, s *stored, reason string, lessen func(context.Context) ([]byte, error)) error {
	left, err := lessen(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	return e.stopped(ctx, s, reason, left)
}

// stopped puts on record what is left of a sandbox that has given up its memory, and
// waits at no snapshot any more.
func (e *Engine) stopped(ctx context.Context, s *stored, reason string, left []byte) error {
	next := *s
	next.From = ""
	if err := e.transition(ctx, &next, sandbox.Stopped, reason, asideOps(s.ID, left)...); err != nil {
		return err
	}
	*s = next
	return nil
}

// mendReduce finishes a reduce that was cut short, with what the driver has found, or
// leaves the sandbox paused as it was if that cannot be.
func (e *Engine) mendReduce(ctx context.Context, s *stored, found driver.Found) error {
	if s.From != "" { // then what is found is there because all was done
		return e.stopped(ctx, s, s.Doing.Reason, found.Saved)
	}
	back := func() error {
		return e.transition(ctx, s, sandbox.Paused, s.Reason, asideOps(s.ID, found.Saved)...)
	}
	d, ok := e.drivers[s.Class].(driver.Reducer)
	if !ok {
		return back()
	}
	spec, err := e.spec(ctx, s)
	if err != nil {
		return back()
	}
	left, err := d.Reduce(ctx, spec, found.Saved)
	switch {
	case sandbox.KindOf(err) == sandbox.Internal || sandbox.KindOf(err) == sandbox.NotFound:
		return err // the driver knows, when it is asked again
	case err != nil:
		return back()
	}
	return e.stopped(ctx, s, s.Doing.Reason, left)
}
