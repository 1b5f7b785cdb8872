package engine

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// resumeVerbs names what takes a sandbox out of a state.
var resumeVerbs = map[sandbox.State]string{sandbox.Paused: "resume", sandbox.Stopped: "start"}

// takeBack makes a sandbox run that is paused or stopped. The caller holds its
// lock. One that cannot wake stays as it is, with the reason; it is Failed when
// the driver says that what was kept is gone or does not serve.
func (e *Engine) takeBack(ctx context.Context, s *stored) (_ *live, err error) {
	t := e.timed(resumeVerbs[s.State])
	defer t.end(&err)
	d, err := e.pauser(s.Class)
	if err != nil {
		return nil, err
	}
	give, err := e.slots.take(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	t.stage("queue")
	if s.From != "" {
		return e.wakeFrom(ctx, s)
	}
	saved, err := e.records.Get(ctx, savedKey(s.ID))
	if err != nil {
		return nil, fail("find what was kept", "", err)
	}
	spec, err := e.spec(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := e.enforceAgain(ctx, s); err != nil {
		return nil, err
	}
	if err := e.intend(ctx, s, doing{Verb: resumeVerbs[s.State], Aside: s.State}); err != nil {
		return e.ifRunning(ctx, s, err)
	}
	m, err := d.Resume(ctx, spec, saved.Value)
	if err != nil {
		return nil, e.notResumed(ctx, s, err)
	}
	l := e.keep(s.ID, m)
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	if err := e.transition(ctx, s, sandbox.Running, "", runningOps(s.ID, m.State())...); err != nil {
		return e.ifRunning(ctx, s, err)
	}
	e.attend(s.ID, l)
	return l, nil
}

// ifRunning mends after err and returns the machine if the sandbox runs then.
func (e *Engine) ifRunning(ctx context.Context, s *stored, err error) (*live, error) {
	if aerr := e.again(ctx, s); aerr != nil {
		return nil, fmt.Errorf("%w (and its undoing: %w)", err, aerr)
	}
	if l := e.held(s.ID); l != nil && s.State == sandbox.Running {
		return l, nil
	}
	return nil, err
}

// notResumed settles what the driver could not take up.
func (e *Engine) notResumed(ctx context.Context, s *stored, err error) error {
	gone := sandbox.KindOf(err) == sandbox.Internal || sandbox.KindOf(err) == sandbox.NotFound
	reason := fmt.Sprintf("it could not be resumed: %v", err)
	if ctx.Err() != nil {
		gone, reason = false, s.Reason // nobody waited for the end
	}
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	var serr error
	if gone {
		serr = e.transition(ctx, s, sandbox.Failed, reason, goneOps(s.ID)...)
	} else {
		changed := *s
		changed.Doing, changed.Reason = nil, reason
		serr = e.commit(ctx, s, &changed, sandbox.ChangeUpdated)
	}
	if serr != nil {
		return fmt.Errorf("%w (and its record: %w)", err, serr)
	}
	return err
}

// spec is what a sandbox's machine is made of.
func (e *Engine) spec(ctx context.Context, s *stored) (driver.Spec, error) {
	t, err := e.templates.Get(ctx, s.Image)
	if err != nil {
		return driver.Spec{}, &sandbox.Error{Op: "find its root", Kind: sandbox.Unavailable, Err: err}
	}
	return e.machineSpec(ctx, s, e.templates.RootPath(t))
}
