package engine

import (
	"context"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// probeAge is how long the answer of a driver's probe is believed.
const probeAge = time.Minute

// probes remembers what the drivers found. turn lets one caller probe at a time.
type probes struct {
	turn chan struct{} // full while somebody holds what follows

	at   time.Time
	last []sandbox.ClassStatus
}

// Status returns what this server can do, and what it is doing for the caller.
func (e *Engine) Status(ctx context.Context) (sandbox.Status, error) {
	const op = "status"
	st := sandbox.Status{
		Version: e.version, Started: e.started, Sandboxes: map[sandbox.State]int{},
		Creating: int(e.slots.running.Load()), Queued: int(e.slots.waiting.Load()), Warm: e.pool.size(),
	}
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return st, fail(op, "", err)
	}
	if err := e.each(ctx, func(s *stored) error {
		if c.Sees(s.Account) {
			st.Sandboxes[s.State]++
		}
		return nil
	}); err != nil {
		return st, fail(op, "", err)
	}
	st.Classes, err = e.classStatus(ctx)
	if c.Operator {
		st.Disk = e.room.status()
	} else {
		st.Creating, st.Queued, st.Warm = 0, 0, 0
		st.Classes = forTenants(st.Classes)
	}
	return st, fail(op, "", err)
}

// forTenants is what an account learns of the classes: what it can use, and
// nothing of the machine beneath.
func forTenants(classes []sandbox.ClassStatus) []sandbox.ClassStatus {
	all := make([]sandbox.ClassStatus, len(classes))
	for i, c := range classes {
		all[i] = sandbox.ClassStatus{Class: c.Class, Usable: c.Usable, Survives: c.Survives, Isolates: c.Isolates}
	}
	return all
}

func (e *Engine) classStatus(ctx context.Context) ([]sandbox.ClassStatus, error) {
	p := &e.probes
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.last != nil && e.now().Sub(p.at) < probeAge {
		return p.last, nil
	}
	all := make([]sandbox.ClassStatus, 0, len(e.classes))
	for _, class := range e.classes {
		c := sandbox.ClassStatus{Class: class}
		found, err := e.drivers[class].Probe(ctx)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			c.Problem, c.Hint = err.Error(), sandbox.HintOf(err)
		} else {
			c.Usable = true
			c.Version, c.Survives, c.Isolates = found.Version, found.Survives, found.Isolates
			c.Details, c.Warnings = found.Details, found.Warnings
		}
		all = append(all, c)
	}
	p.at, p.last = e.now(), all
	return all, nil
}
