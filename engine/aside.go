package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// putting is how a sandbox is put aside.
type putting struct {
	op     string
	to     sandbox.State // Paused or Stopped
	keep   driver.Keep
	reason string
	may    func(*uses) bool // if set, asked once nobody new is let in any more
	atOnce bool             // short calls under way are not waited for
}

// putAside pauses or stops a sandbox. The result is errBusy if p.may refuses.
func (e *Engine) putAside(ctx context.Context, id sandbox.ID, p putting) (sandbox.Sandbox, error) {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	defer unlock()
	s, err := e.loadMended(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	switch s.State {
	case p.to:
		return s.Sandbox, nil
	case sandbox.Running:
	case sandbox.Paused: // to be stopped
		if d, ok := e.drivers[s.Class].(driver.Reducer); ok {
			err := e.reduce(ctx, s, d, p.reason)
			return s.Sandbox, err
		}
		if _, err := e.takeBack(ctx, s); err != nil { // only what runs can write its disk out
			return sandbox.Sandbox{}, err
		}
	default:
		return sandbox.Sandbox{}, notRunning(s)
	}
	if err := e.putRunning(ctx, s, p); err != nil {
		return sandbox.Sandbox{}, err
	}
	return s.Sandbox, nil
}

// errBusy says that a machine that was idle no longer is.
var errBusy = &sandbox.Error{Kind: sandbox.Conflict, Err: errors.New("it is in use")}

func (e *Engine) putRunning(ctx context.Context, s *stored, p putting) (err error) {
	t := e.timed(p.op)
	defer t.end(&err)
	d, err := e.pauser(s.Class)
	if err != nil {
		return err
	}
	l := e.held(s.ID)
	if l == nil {
		if l, err = e.adopt(ctx, s); err != nil {
			return err
		}
	}
	calm := calmTime
	if p.atOnce {
		calm = 0
	}
	free, err := l.closeIn(ctx, p.may, calm)
	if err == nil && !free {
		return errBusy
	}
	if err == nil {
		l.part(p.to)
		if p.to == sandbox.Paused {
			l.loosen(ctx)
		}
		err = e.save(ctx, s, l, d, p)
	}
	if err != nil {
		// Whatever went wrong, the driver knows where the machine is now.
		if aerr := e.again(ctx, s); aerr != nil {
			return fmt.Errorf("%w (and its undoing: %w)", err, aerr)
		}
		if s.State == sandbox.Running {
			l.reopen()
		}
		if s.State != p.to {
			return err
		}
	}
	return e.drop(s.ID)
}

// save is the three steps of a pause.
func (e *Engine) save(ctx context.Context, s *stored, l *live, d driver.Pauser, p putting) error {
	e.measure(ctx, s.ID, l) // the counters end with the machine
	if err := e.intend(ctx, s, doing{Verb: p.op, Aside: p.to, Reason: p.reason}); err != nil {
		return err
	}
	saved, err := d.Pause(ctx, l.machine, p.keep)
	if err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	return e.transition(ctx, s, p.to, p.reason, asideOps(s.ID, saved)...)
}

// pauser returns the driver of a class that can put machines aside.
func (e *Engine) pauser(class string) (driver.Pauser, error) {
	d, err := e.driver(class)
	if err != nil {
		return nil, err
	}
	if p, ok := d.(driver.Pauser); ok {
		return p, nil
	}
	return nil, &sandbox.Error{Op: "find driver", Kind: sandbox.Unsupported,
		Err: fmt.Errorf("sandboxes of class %q cannot be put aside", class), Hint: "remove it, or let it run"}
}
