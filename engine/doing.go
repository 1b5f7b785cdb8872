package engine

import (
	"context"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// doing is a verb whose intent is on record, and whose outcome is not yet.
//
// Every verb that changes a machine goes through three steps: (1) it commits
// what it is doing; (2) it calls the driver; (3) it commits the state and the
// bytes that follow, which ends what it was doing. Whoever comes upon a record
// with something in it, the sandbox's lock in hand, mends it first. So it makes
// no difference whether the engine was killed or an error came between:
//
//	verb            stopped after      what the driver finds   mended to
//	create          any step           —                       deleted (Open), undone (error)
//	pause, stop     (1)                a live machine          running: the verb did nothing
//	pause, stop     (2)                what is put aside       paused, stopped: the verb is finished
//	pause, stop     in (2)             as the driver decides   the same as one of the two above
//	reduce          (1), (2)           what is put aside       stopped: the verb is finished; if it cannot
//	                                                           be, paused, as before
//	resume, start   (1)                what is put aside       paused, stopped, as before
//	resume, start   (2)                a live machine          running: the verb is finished
//	resume, start   in (2)             as the driver decides   the same as one of the two above
//	pause … start   any step           nothing                 failed, with the reason
//	resize          (1), (2)           a live machine          running, with the limits from before
//	remove          (1), (2)           anything                deleted: the verb is finished
//	rollback        (1), (2)           anything                put aside at the snapshot: the verb is finished
//	resume, start,  any step           nothing, but it was     put aside there, as before
//	reduce                             put aside at a snapshot
//
// When the driver cannot tell, the record stays as it is and the verb that came
// upon it returns the driver's error.
type doing struct {
	Verb  string        `json:"verb"`            // pause, stop, reduce, resume, start, resize, remove, rollback
	Aside sandbox.State `json:"aside,omitempty"` // the state of what is put aside, if that is what is found

	Reason   string     `json:"reason,omitempty"`   // of a pause or stop, as its outcome will have it
	Snapshot sandbox.ID `json:"snapshot,omitempty"` // of a rollback
}

// intend puts on record what is about to be done. After an error the outcome may
// be unknown: the caller mends.
func (e *Engine) intend(ctx context.Context, s *stored, d doing) error {
	changed := *s
	changed.Doing = &d
	return e.commit(ctx, s, &changed, "")
}

// loadMended returns a sandbox's record with nothing under way. The caller holds
// the sandbox's lock.
func (e *Engine) loadMended(ctx context.Context, id sandbox.ID) (*stored, error) {
	s, err := e.load(ctx, id)
	if sandbox.KindOf(err) == sandbox.NotFound {
		e.ledger.gone(id)
	}
	if err != nil {
		return nil, err
	}
	if s.Doing == nil {
		e.ledger.note(s) // the outcome of the commit before may have been unknown
		return s, nil
	}
	if err := e.mend(ctx, s); err != nil {
		return nil, err
	}
	if s.State == sandbox.Deleted {
		return nil, notFound()
	}
	return s, nil
}

// again loads and mends the record after a step has failed, although ctx may
// have ended. The caller's s is brought up to date.
func (e *Engine) again(ctx context.Context, s *stored) error {
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	now, err := e.loadMended(ctx, s.ID)
	if err != nil {
		return err
	}
	*s = *now
	return nil
}

// mend finishes or takes back what a record says is under way, as the table of
// doing has it.
func (e *Engine) mend(ctx context.Context, s *stored) error {
	switch s.Doing.Verb {
	case "remove":
		return e.finishRemove(ctx, s)
	case "resize":
		return e.restoreLimits(ctx, s)
	case "rollback":
		return e.mendRollback(ctx, s)
	}
	found, err := e.find(ctx, s)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound && s.From != "":
		return e.transition(ctx, s, s.Doing.Aside, s.Reason, goneOps(s.ID)...)
	case sandbox.KindOf(err) == sandbox.NotFound:
		return e.lose(ctx, s)
	case err != nil:
		return err
	case found.Saved != nil && s.Doing.Verb == "reduce":
		return e.mendReduce(ctx, s, found)
	case found.Saved != nil:
		if err := e.transition(ctx, s, s.Doing.Aside, s.reasonAside(), asideOps(s.ID, found.Saved)...); err != nil {
			return err
		}
		return e.drop(s.ID)
	}
	return e.takeUp(ctx, s, found.State)
}

// reasonAside is the reason of what was found put aside: that of the pause or stop that
// was under way, or as before.
func (s *stored) reasonAside() string {
	if s.Doing.Verb == "pause" || s.Doing.Verb == "stop" {
		return s.Doing.Reason
	}
	return s.Reason
}

// find asks the driver what there is of a machine whose verb was cut short.
func (e *Engine) find(ctx context.Context, s *stored) (driver.Found, error) {
	d, err := e.driver(s.Class)
	if err != nil {
		return driver.Found{}, err
	}
	if f, ok := d.(driver.Finder); ok {
		return f.Find(ctx, s.ID)
	}
	// Without that, what is on record is believed.
	if entry, err := e.records.Get(ctx, savedKey(s.ID)); sandbox.KindOf(err) != sandbox.NotFound {
		return driver.Found{Saved: entry.Value}, err
	}
	entry, err := e.records.Get(ctx, machineKey(s.ID))
	return driver.Found{State: entry.Value}, err
}

// takeUp makes a sandbox Running whose machine was found alive.
func (e *Engine) takeUp(ctx context.Context, s *stored, state []byte) error {
	l := e.held(s.ID)
	if l == nil {
		d, err := e.driver(s.Class)
		if err != nil {
			return err
		}
		if err := e.enforceAgain(ctx, s); err != nil {
			return err
		}
		m, err := d.Recover(ctx, s.ID, state)
		if sandbox.KindOf(err) == sandbox.NotFound {
			return e.lose(ctx, s)
		}
		if err != nil {
			return err
		}
		l = e.keep(s.ID, m)
	}
	reason := ""
	if s.State == sandbox.Running { // nothing has come of a pause
		reason = s.Reason
	}
	if err := e.transition(ctx, s, sandbox.Running, reason, runningOps(s.ID, l.machine.State())...); err != nil {
		return err
	}
	e.attend(s.ID, l)
	l.reopen()
	return nil
}

// runningOps are the keys of a machine that runs.
func runningOps(id sandbox.ID, state []byte) []record.Op {
	return []record.Op{{Key: machineKey(id), Value: state}, {Key: savedKey(id), Delete: true}}
}

// asideOps are the keys of a machine that is put aside.
func asideOps(id sandbox.ID, saved []byte) []record.Op {
	return []record.Op{{Key: savedKey(id), Value: saved}, {Key: machineKey(id), Delete: true}}
}

// goneOps are the keys of a machine of which nothing is left.
func goneOps(id sandbox.ID) []record.Op {
	return []record.Op{{Key: machineKey(id), Delete: true}, {Key: savedKey(id), Delete: true}}
}
