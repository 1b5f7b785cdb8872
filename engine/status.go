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

// Status returns what this server can do and what it is doing.
func (e *Engine) Status(ctx context.Context) (sandbox.Status, error) {
	const op = "status"
	st := sandbox.Status{
		Version: e.version, Started: e.started, Sandboxes: map[sandbox.State]int{},
		Creating: int(e.slots.running.Load()), Queued: int(e.slots.waiting.Load()),
	}
	if err := e.each(ctx, func(s *stored) error { st.Sandboxes[s.State]++; return nil }); err != nil {
		return st, fail(op, "", err)
	}
	var err error
	st.Classes, err = e.classStatus(ctx)
	return st, fail(op, "", err)
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
