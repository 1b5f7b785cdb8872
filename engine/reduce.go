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
	saved, err := e.records.Get(ctx, savedKey(s.ID))
	if err != nil {
		return fail("find what was kept", "", err)
	}
	spec, err := e.spec(ctx, s)
	if err != nil {
		return err
	}
	err = e.intend(ctx, s, doing{Verb: "reduce", Aside: sandbox.Paused})
	if err == nil {
		err = e.reduced(ctx, s, d, spec, saved.Value, reason)
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

// reduced is the driver's part, and its outcome.
func (e *Engine) reduced(ctx context.Context, s *stored, d driver.Reducer, spec driver.Spec, saved []byte, reason string) error {
	left, err := d.Reduce(ctx, spec, saved)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	return e.transition(ctx, s, sandbox.Stopped, reason, asideOps(s.ID, left)...)
}

// mendReduce finishes a reduce that was cut short, with what the driver has found, or
// leaves the sandbox paused as it was if that cannot be.
func (e *Engine) mendReduce(ctx context.Context, s *stored, found driver.Found) error {
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
	return e.transition(ctx, s, sandbox.Stopped, "", asideOps(s.ID, left)...)
}
