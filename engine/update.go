package engine

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Update changes what is kept with a sandbox, in any state but failed. New limits
// of one that runs hold at once; of another, when it runs again. All of the
// update is done, or nothing.
//
// Unsupported: limits that cannot change while it runs. Exhausted: limits below
// what it uses.
func (e *Engine) Update(ctx context.Context, id string, u sandbox.Update) (sandbox.Sandbox, error) {
	const op = "update"
	done, err := e.task()
	if err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	defer done()
	if err := u.Check(); err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, known(id), err)
	}
	unlock, err := e.sandboxes.Lock(ctx, string(sid))
	if err != nil {
		return sandbox.Sandbox{}, fail(op, sid, err)
	}
	defer unlock()
	s, err := e.loadMended(ctx, sid)
	if err == nil {
		err = e.update(ctx, s, &u)
	}
	if err != nil {
		return sandbox.Sandbox{}, fail(op, sid, err)
	}
	return s.Sandbox, nil
}

func (e *Engine) update(ctx context.Context, s *stored, u *sandbox.Update) error {
	if !s.living() || s.State == sandbox.Starting {
		return notRunning(s)
	}
	changed := *s
	if err := e.apply(&changed, u); err != nil {
		return err
	}
	if changed.Limits == s.Limits {
		return e.commit(ctx, s, &changed, sandbox.ChangeUpdated)
	}
	if err := e.admit(ctx, &changed); err != nil {
		return err
	}
	err := e.updateLimits(ctx, s, &changed)
	if err != nil && s.Doing == nil {
		e.ledger.note(s)
	}
	return err
}

func (e *Engine) updateLimits(ctx context.Context, s, changed *stored) error {
	if s.State != sandbox.Running {
		return e.commit(ctx, s, changed, sandbox.ChangeResized)
	}
	return e.resize(ctx, s, changed)
}

// apply makes the changes in a copy of the record.
func (e *Engine) apply(s *stored, u *sandbox.Update) error {
	metadata, err := u.Merge(s.Metadata)
	if err != nil {
		return err
	}
	if len(u.Metadata) > 0 {
		s.Metadata = metadata
	}
	if u.Tags != nil {
		s.Tags = *u.Tags
	}
	if u.Env != nil {
		s.Env = *u.Env
	}
	if u.Idle != nil {
		s.Idle = u.Idle
	}
	if u.Lifetime != nil {
		s.Lifetime = u.Lifetime
	}
	if u.Checkpoint != nil {
		s.Checkpoint = u.Checkpoint
	}
	if err := e.canCheckpoint(s); err != nil {
		return err
	}
	if u.Budget != nil {
		s.Budget = u.Budget
	}
	if err := e.canBudget(s.Budget); err != nil {
		return err
	}
	if u.Wake != nil {
		s.Wake = u.Wake
	}
	var limits sandbox.Limits
	if u.Limits != nil {
		limits = *u.Limits
	}
	if limits, err = limits.TypeLimits(u.Type, e.types); err != nil {
		return err
	}
	s.Limits = limits.WithDefaults(s.Limits)
	if u.Type != "" {
		s.Type = u.Type
	} else if u.Limits != nil {
		s.Type = ""
	}
	return s.Limits.Check()
}

// resize gives a machine that runs new limits, in the three steps of doing.
func (e *Engine) resize(ctx context.Context, s, changed *stored) error {
	r, l, err := e.resizer(ctx, s)
	if err != nil {
		return err
	}
	if err := e.intend(ctx, s, doing{Verb: "resize"}); err != nil {
		return e.withMending(ctx, s, err)
	}
	if err := r.Resize(ctx, l.machine, changed.Limits); err != nil {
		return e.withMending(ctx, s, err)
	}
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	changed.Doing, changed.revision = nil, s.revision
	limits := changed.Limits
	if err := e.commit(ctx, s, changed, sandbox.ChangeResized); err != nil {
		err = e.withMending(ctx, s, err)
		if s.Limits == limits {
			return nil // it was written after all
		}
		return err
	}
	return nil
}

func (e *Engine) resizer(ctx context.Context, s *stored) (driver.Resizer, *live, error) {
	d, err := e.driver(s.Class)
	if err != nil {
		return nil, nil, err
	}
	r, ok := d.(driver.Resizer)
	if !ok {
		return nil, nil, &sandbox.Error{Op: "find driver", Kind: sandbox.Unsupported,
			Err: fmt.Errorf("the limits of class %q do not change while a sandbox runs", s.Class), Hint: "pause or stop it, change them, and wake it"}
	}
	l := e.held(s.ID)
	if l == nil {
		l, err = e.adopt(ctx, s)
	}
	return r, l, err
}

// withMending mends what a step that failed left, and returns why it failed.
func (e *Engine) withMending(ctx context.Context, s *stored, err error) error {
	if aerr := e.again(ctx, s); aerr != nil {
		return fmt.Errorf("%w (and its undoing: %w)", err, aerr)
	}
	return err
}

// restoreLimits gives the machine the limits that are on record, whichever it
// has: a resize was cut short.
func (e *Engine) restoreLimits(ctx context.Context, s *stored) error {
	r, l, err := e.resizer(ctx, s)
	if s.State == sandbox.Failed {
		return nil // its machine was gone
	}
	if err != nil {
		return err
	}
	if err := r.Resize(ctx, l.machine, s.Limits); err != nil {
		return err
	}
	return e.transition(ctx, s, sandbox.Running, s.Reason)
}
