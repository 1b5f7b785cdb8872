package docker

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// again is how long a watcher leaves what went wrong alone.
const again = time.Second

// watcher follows the command of one running container.
type watcher struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// watch ends a container when its command ends, as long as it runs.
func (d *Dialect) watch(c *container) {
	id, name, process := c.box.ID, c.Name, c.Process
	ctx, cancel := context.WithCancel(d.ctx)
	w := &watcher{cancel: cancel, done: make(chan struct{})}
	d.mu.Lock()
	busy := d.closed || process == "" || d.watchers[id] != nil
	if !busy {
		d.watchers[id] = w
	}
	d.mu.Unlock()
	if busy || !d.task(func() {
		defer close(w.done)
		defer d.unlist(id, w)
		d.followCommand(ctx, id, name, process)
	}) {
		cancel()
	}
}

func (d *Dialect) unlist(id sandbox.ID, w *watcher) {
	w.cancel()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watchers[id] == w {
		delete(d.watchers, id)
	}
}

// unwatch ends the watcher of a sandbox and waits for it: it would wake what is
// put aside.
func (d *Dialect) unwatch(id sandbox.ID) {
	d.mu.Lock()
	w := d.watchers[id]
	d.mu.Unlock()
	if w == nil {
		return
	}
	w.cancel()
	<-w.done
}

// followCommand returns when the command has ended, or the sandbox does not run: it
// is looked at again once that does.
func (d *Dialect) followCommand(ctx context.Context, id sandbox.ID, name, process string) {
	for {
		exit, err := d.engine.WaitProcess(ctx, string(id), process)
		switch kind := sandbox.KindOf(err); {
		case ctx.Err() != nil:
			return
		case err == nil:
			// Its own goroutine: what ends the container waits for this watcher.
			d.task(func() { d.ended(name, id, process, exit) })
			return
		case kind == sandbox.NotFound: // the process is not known any more
			d.task(func() { d.ended(name, id, process, sandbox.Exit{Code: killed}) })
			return
		}
		s, err := d.engine.Get(ctx, string(id))
		if err == nil && s.State != sandbox.Running || sandbox.KindOf(err) == sandbox.NotFound {
			return
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return
		}
	}
}

// ended is the end of a container's command.
func (d *Dialect) ended(name string, id sandbox.ID, process string, exit sandbox.Exit) {
	unlock, err := d.names.lock(d.ctx, name)
	if err != nil {
		return
	}
	defer unlock()
	c, err := d.load(d.ctx, name)
	if err != nil || c.box.ID != id || c.Phase != running || c.Process != process {
		return // somebody else has ended it
	}
	c.Process = ""
	if c.Server && exit.Code == 0 { // the vendor's program goes on
		err = d.save(d.ctx, c)
	} else {
		err = d.putAside(d.ctx, c, exit.Code, false)
	}
	if err != nil && d.ctx.Err() == nil {
		d.log.Error("end a container", "container", name, "error", err)
	}
}

// follow looks again at the containers whose sandboxes were changed from elsewhere.
func (d *Dialect) follow() {
	for after := ""; d.ctx.Err() == nil; {
		after = d.followFrom(after)
		select {
		case <-time.After(again):
		case <-d.ctx.Done():
		}
	}
}

func (d *Dialect) followFrom(after string) string {
	stream, err := d.engine.FollowChanges(d.ctx, sandbox.ChangeQuery{After: after, Types: []sandbox.ChangeType{
		sandbox.ChangeType(sandbox.Running), sandbox.ChangeType(sandbox.Stopped), sandbox.ChangeType(sandbox.Failed), sandbox.ChangeType(sandbox.Deleted)}})
	if err != nil {
		d.log.Error("follow changes", "error", err)
		return after
	}
	defer stream.Close()
	for {
		ch, err := stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) && d.ctx.Err() == nil {
				d.log.Error("follow changes", "error", err)
			}
			return after
		}
		after = ch.Cursor
		d.look(ch)
	}
}

// look takes notice of one change.
func (d *Dialect) look(ch sandbox.Change) {
	d.mu.Lock()
	name := d.known[ch.Sandbox]
	if ch.State == sandbox.Deleted || ch.State == sandbox.Failed {
		delete(d.known, ch.Sandbox)
	}
	d.mu.Unlock()
	if name == "" {
		return
	}
	d.news.post(name)
	if ch.State != sandbox.Running {
		return
	}
	c, err := d.load(d.ctx, name)
	if err != nil || c.Phase != running || c.box.State != sandbox.Running {
		return
	}
	d.watch(c)
	if c.Revived {
		d.task(func() { d.woken(name) })
	}
}

// woken notes that what seemed to run does.
func (d *Dialect) woken(name string) {
	unlock, err := d.names.lock(d.ctx, name)
	if err != nil {
		return
	}
	defer unlock()
	c, err := d.load(d.ctx, name)
	if err != nil || !c.Revived || c.Phase != running || c.box.State != sandbox.Running {
		return // it is otherwise by now
	}
	c.Revived, c.GoesOn, c.Started, c.Ended = false, false, time.Now().UTC().Round(0), time.Time{}
	if err := d.save(d.ctx, c); err != nil && d.ctx.Err() == nil {
		d.log.Error("note that a container runs", "container", name, "error", err)
	}
}

// takeUp goes on with the containers that an earlier server left.
func (d *Dialect) takeUp(ctx context.Context) error {
	all, err := d.containers(ctx)
	if err != nil {
		return err
	}
	for _, c := range all {
		if err := d.takeUpOne(ctx, c); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			// It reaches nothing, and is not reached, until it is created anew: no reason
			// to keep the others waiting.
			d.log.Error("take a container up", "container", c.Name, "sandbox", c.box.ID, "error", err)
		}
	}
	return nil
}

func (d *Dialect) takeUpOne(ctx context.Context, c *container) error {
	if !c.Gone {
		if err := d.reconnect(ctx, c); err != nil {
			return err
		}
	}
	switch {
	case c.box.State != sandbox.Running:
	case c.Phase == running:
		d.watch(c)
	case c.Phase == exited: // its end was begun
		return d.rest(ctx, c, !d.forget && c.Code != killed && (c.Code == 0 || c.Process != ""))
	}
	return nil
}
