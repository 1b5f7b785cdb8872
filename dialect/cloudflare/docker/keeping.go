package docker

import (
	"context"
	"strings"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// workerdPrefix begins the names of the containers that workerd makes.
const workerdPrefix = "workerd-"

// defaultKeep is how long sandboxes wait for their containers unless it is said.
const defaultKeep = 7 * 24 * time.Hour

// waits reports whether a container that is removed leaves its sandbox to the next one
// of its name. workerd removes those that sleep, shortly after that, and what it wants
// to end for good while it still runs. What has volumes begins with what is in them each
// time, and workerd removes those with it.
//
// workerd asks nothing of a container that does not run to end it for good. So one that
// sleeps seems to run to the next object of its name, which looks at it first (see
// revive). If it is removed then, that may still be for the object's own end: then it
// is looked at before it is created again, and removed no second time.
func (d *Dialect) waits(c *container) bool {
	return !d.forget && (c.Phase == exited || c.sleeps()) && strings.HasPrefix(c.Name, workerdPrefix) && len(c.box.Volumes) == 0
}

// sleeps reports whether a container seems to run, and has not been woken yet.
func (c *container) sleeps() bool { return c.Revived && c.box.State == sandbox.Paused }

// revive has a container that was removed asleep run again, as far as who asks can tell:
// its sandbox wakes with the first connection to it. It is NotFound unless its memory
// was kept.
func (d *Dialect) revive(ctx context.Context, name string) (*container, error) {
	unlock, err := d.names.lock(ctx, name)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := d.find(ctx, name)
	if err != nil || !c.Gone { // somebody was quicker
		return c, err
	}
	if d.forget || c.box.State != sandbox.Paused || !strings.HasPrefix(name, workerdPrefix) {
		return nil, noContainer(name)
	}
	if c.Proxy == nil || d.sidecar(c.Proxy.Name) != nil {
		err = d.connect(ctx, c)
	} else {
		err = d.reconnect(ctx, c)
	}
	if err != nil {
		return nil, err
	}
	c.Gone, c.Doubt, c.Revived, c.Phase, c.Code = false, false, true, running, 0
	return c, d.save(ctx, c)
}

// leave removes a container and leaves its sandbox as it is, until the next container
// of its name, or until its time is over.
func (d *Dialect) leave(ctx context.Context, c *container) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	if c.sleeps() {
		c.Phase, c.Code, c.Ended, c.Doubt = exited, killed, time.Now().UTC().Round(0), true
	}
	c.Gone, c.Revived = true, false
	if err := d.save(ctx, c); err != nil {
		return err
	}
	d.disconnect(c.box.ID)
	return nil
}
