package docker

import (
	"context"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// defaultOrphan is how long containers are left alone that nobody has run any more
// unless it is said.
const defaultOrphan = time.Hour

// How often containers are looked at that nobody may come back to.
const (
	leastSweep = 10 * time.Millisecond
	mostSweep  = 10 * time.Minute
)

// fate is what becomes of a container to which nobody has come.
type fate int

const (
	stays fate = iota
	rests      // its sandbox is paused; whoever comes to it wakes it
	goes       // it is removed
)

// sweep looks over and over for what nobody comes back to.
func (d *Dialect) sweep() {
	every := max(leastSweep, min(d.keep/2, d.orphan/2, mostSweep))
	tick := time.NewTicker(every)
	defer tick.Stop()
	var orphans map[sandbox.ID]time.Time
	for d.ctx.Err() == nil {
		var err error
		if orphans, err = d.sweepOnce(d.ctx, time.Now(), orphans); err != nil && d.ctx.Err() == nil {
			d.log.Error("remove what nobody has come back to", "error", err)
		}
		select {
		case <-tick.C:
		case <-d.ctx.Done():
		}
	}
}

// sweepOnce looks once. orphans are the containers whose makers had ended when it was
// looked last, and since when that is known; those of now are returned.
func (d *Dialect) sweepOnce(ctx context.Context, now time.Time, orphans map[sandbox.ID]time.Time) (map[sandbox.ID]time.Time, error) {
	all, err := d.containers(ctx)
	if err != nil {
		return orphans, err
	}
	still := map[sandbox.ID]time.Time{}
	for _, c := range all {
		since, known := orphans[c.box.ID]
		if !known {
			since = now
		}
		if c.orphaned() {
			still[c.box.ID] = since
		}
		if d.fateOf(c, since, now) == stays {
			continue
		}
		if err := d.meet(ctx, c.Name, since, now); err != nil {
			return still, err
		}
	}
	return still, d.sweepClones(ctx, now)
}

// orphaned reports whether a container's maker is known to have ended.
func (c *container) orphaned() bool {
	return c.Owner != nil && !c.Owner.lives(c.Labels[sessionLabel] != "")
}

// fateOf decides over a container whose maker, if that has ended, is known to have done
// so since a time.
func (d *Dialect) fateOf(c *container, since, now time.Time) fate {
	idle := c.box.State != sandbox.Running
	switch {
	case (c.Phase == exited || c.sleeps()) && idle && !c.Ended.IsZero() && now.Sub(c.Ended) > d.keep:
		return goes // it was stopped
	case !c.orphaned() || now.Sub(since) <= d.orphan:
		return stays
	case c.Labels[sessionLabel] != "": // with its maker, its session is over
		return goes
	case c.Phase == exited:
		return stays // for as long as it is kept
	case !idle:
		return rests
	case now.Sub(c.box.Updated) > d.keep:
		return goes
	}
	return stays
}

// meet has a container meet its fate, unless somebody was quicker.
func (d *Dialect) meet(ctx context.Context, name string, since, now time.Time) error {
	unlock, err := d.names.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := d.find(ctx, name)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	switch d.fateOf(c, since, now) {
	case rests:
		d.log.Info("the maker of a container has ended", "container", c.Name, "sandbox", c.box.ID)
		return d.doze(ctx, c)
	case goes:
		d.log.Info("nobody comes back to a container", "container", c.Name, "sandbox", c.box.ID, "ended", c.Ended)
		if c.Proxy != nil {
			if s := d.sidecar(c.Proxy.Name); s != nil {
				d.dropSidecar(s)
			}
		}
		return d.destroy(ctx, c)
	}
	return nil
}

// doze pauses the sandbox of a container that runs as far as anybody can tell.
func (d *Dialect) doze(ctx context.Context, c *container) error {
	d.unwatch(c.box.ID)
	_, err := d.engine.Pause(ctx, string(c.box.ID))
	if err != nil {
		d.watch(c)
	}
	if sandbox.KindOf(err) == sandbox.Unsupported { // its memory cannot be kept: it is left as it is
		return nil
	}
	return err
}
