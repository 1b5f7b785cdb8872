package engine

import (
	"context"
	"errors"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// errRemoved is the cause of a create that Remove ended.
var errRemoved = &sandbox.Error{Kind: sandbox.Conflict, Err: errors.New("it was removed while it was starting")}

// Remove ends a sandbox, in whatever state, and deletes all of it. Of several
// calls at once all succeed; one that comes later is NotFound. What has begun is
// finished although ctx ends.
func (e *Engine) Remove(ctx context.Context, id string) error {
	const op = "remove"
	done, err := e.task()
	if err != nil {
		return fail(op, "", err)
	}
	defer done()
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return fail(op, known(id), err)
	}
	if _, err := e.load(ctx, sid); err != nil {
		return fail(op, sid, err)
	}
	e.abort(sid)
	return fail(op, sid, e.remove(ctx, sid, "", nil))
}

// abort ends the create of a sandbox that is starting.
func (e *Engine) abort(id sandbox.ID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if abort := e.creating[id]; abort != nil {
		abort(errRemoved)
	}
}

// remove removes a sandbox for a reason. The result is errBusy if may refuses.
func (e *Engine) remove(ctx context.Context, id sandbox.ID, reason string, may func(*uses) bool) error {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	ctx, cancel := bounded(ctx, stopTime)
	defer cancel()
	s, err := e.loadMended(ctx, id)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil // another call was faster, or the create took itself back
	}
	if err != nil {
		if s, err = e.load(ctx, id); err != nil { // what cannot be mended can be removed
			return err
		}
	}
	if l := e.held(id); l != nil && may != nil {
		if free, err := l.close(ctx, may); err != nil || !free {
			return errors.Join(err, errBusy)
		}
	}
	s.Reason = reason
	if l := e.held(id); l != nil {
		e.measure(ctx, id, l) // the counters end with the machine
	}
	if err := e.intend(ctx, s, doing{Verb: "remove"}); err != nil {
		aerr := e.again(ctx, s)
		if sandbox.KindOf(aerr) == sandbox.NotFound {
			return nil // it was on record after all
		}
		return errors.Join(err, aerr)
	}
	err = e.finishRemove(ctx, s)
	if err != nil {
		e.timers.pause(id, e.now().Add(retryAfter)) // what has begun is finished
	}
	return err
}

// finishRemove ends a sandbox whose record says that it is being removed.
func (e *Engine) finishRemove(ctx context.Context, s *stored) (err error) {
	t := e.timed("remove")
	defer t.end(&err)
	m, err := e.remains(ctx, s)
	if err != nil {
		return err
	}
	if m != nil {
		if err := m.Stop(ctx); err != nil {
			return err
		}
	}
	if d, ok := e.drivers[s.Class].(driver.Pauser); ok && m == nil {
		if err := d.Discard(ctx, s.ID); err != nil {
			return err
		}
	}
	err = e.transition(ctx, s, sandbox.Deleted, s.Reason)
	e.ledger.set(string(s.ID), s.Account, sandbox.Quota{}) // nothing is left that it could use, also if the record is
	if err != nil {
		return err
	}
	return errors.Join(e.drop(s.ID), e.removeChecked(ctx, s.Account, s.Safe))
}

// remains returns the machine that a sandbox still has, or nil.
func (e *Engine) remains(ctx context.Context, s *stored) (driver.Machine, error) {
	if l := e.held(s.ID); l != nil {
		return l.machine, nil
	}
	m, err := e.recover(ctx, s)
	switch sandbox.KindOf(err) {
	case sandbox.NotFound:
		return nil, nil
	case sandbox.Unsupported: // made by a version that this one does not know
		return nil, e.sweep(ctx, s)
	}
	return m, err
}

// sweep removes what a sandbox left behind that cannot be recovered.
func (e *Engine) sweep(ctx context.Context, s *stored) error {
	var keep []sandbox.ID
	if err := e.each(ctx, func(o *stored) error {
		if o.ID != s.ID {
			keep = append(keep, o.ID)
		}
		return nil
	}); err != nil {
		return err
	}
	_, err := e.drivers[s.Class].Sweep(ctx, keep)
	return err
}
