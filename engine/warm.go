package engine

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// poolLook is how often the pool is looked at when nothing tells to.
const poolLook = 5 * time.Second

// warmKind is the kind of machine that a sandbox takes.
func (e *Engine) warmKind(s *stored, image string) kind {
	k := kind{s.Class, image, s.Snapshot, s.Limits}
	if _, ok := e.drivers[s.Class].(driver.Resizer); ok {
		k.limits.CPUMilli, k.limits.MemoryBytes = 0, 0
	}
	return k
}

// takeWarm takes a machine that waits for such a sandbox, which then has its id; nil
// if there is none. What is wrong with the template is the create's to say.
func (e *Engine) takeWarm(ctx context.Context, s *stored) *warm {
	if !e.pool.enabled() || len(s.Volumes) > 0 {
		return nil
	}
	t, err := e.templates.Get(ctx, s.Template)
	if err != nil || s.Snapshot != t.Snapshot {
		return nil // of a snapshot that somebody has taken
	}
	w := e.pool.take(e.warmKind(s, t.Digest), s.Template, s.Limits, e.now())
	if w != nil {
		s.ID = w.id
	}
	return w
}

// machineFor makes the machine of a sandbox, or readies the one that waited for
// it. A warm one that cannot serve is ended, and another made.
func (e *Engine) machineFor(ctx context.Context, s *stored, root string, w *warm) (driver.Machine, error) {
	if w != nil {
		err := e.ready(ctx, s, w)
		if err == nil {
			return w.machine, nil
		}
		e.log.Warn("a machine that waited cannot serve", "sandbox", s.ID, "error", err)
		if err := e.endWarm(ctx, w); err != nil {
			return nil, err
		}
	}
	if s.Snapshot != "" {
		return e.restore(ctx, s, root)
	}
	spec, err := e.machineSpec(ctx, s, root)
	if err != nil {
		return nil, err
	}
	return e.drivers[s.Class].Create(ctx, spec)
}

// ready gives a machine the limits of its sandbox.
func (e *Engine) ready(ctx context.Context, s *stored, w *warm) error {
	if w.kind.image != s.Image || w.kind.snapshot != s.Snapshot {
		return sandbox.Errorf("claim", sandbox.Conflict, "the template was built anew")
	}
	if err := e.descendFrom(ctx, s); err != nil {
		return err
	}
	if w.limits == s.Limits {
		return nil
	}
	return e.drivers[s.Class].(driver.Resizer).Resize(ctx, w.machine, s.Limits)
}

// keepPool makes machines ahead of their creates, one at a time, and ends those
// that are too many. It ends, with all that wait, when the engine closes.
func (e *Engine) keepPool() {
	defer e.drainPool()
	look := time.NewTimer(0)
	defer look.Stop()
	for {
		select {
		case <-e.ctx.Done():
		case <-look.C:
		case <-e.pool.poke:
		}
		if e.ctx.Err() != nil { // which a select need not see first
			return
		}
		look.Reset(e.tendPool())
	}
}

// tendPool does one thing for the pool, and says when to look again.
func (e *Engine) tendPool() time.Duration {
	scarce, dire := e.memoryPressure()
	out := e.pool.surplus(e.now(), dire, e.named())
	e.endAll(e.ctx, out)
	if scarce || e.slots.waiting.Load() > 0 {
		return poolLook
	}
	o, again, ok := e.pool.lacking(e.now())
	if !ok {
		if w := e.pool.unsettled(e.now()); w != nil {
			e.prepareCode(e.ctx, w)
			return 0
		}
		if again > 0 {
			return min(again, poolLook)
		}
		return poolLook
	}
	if err := e.warmUp(e.ctx, o); err != nil && e.ctx.Err() == nil {
		e.pool.failed(o.kind, e.now())
		e.log.Warn("make a machine ahead", "template", o.template, "error", err)
	}
	return 0
}

// memoryPressure says whether the host has too little memory to make more, and
// whether it needs back what the waiting ones hold. Not to know is to have none.
func (e *Engine) memoryPressure() (scarce, dire bool) {
	c := e.pool.config
	if c.Available == nil {
		return false, false
	}
	n, err := c.Available()
	if err != nil {
		e.log.Warn("look at the host's memory", "error", err)
		return true, false
	}
	return n < c.Reserve, n < c.Reserve/2
}

// named tells of a kind whether a template makes it now.
func (e *Engine) named() func(kind) bool {
	all, err := e.templates.List(e.ctx)
	if err != nil {
		if e.ctx.Err() == nil {
			e.log.Warn("list the templates", "error", err)
		}
		return func(kind) bool { return true } // they are looked at again
	}
	type made struct {
		image    string
		snapshot sandbox.ID
	}
	named := map[made]bool{}
	for _, t := range all {
		named[made{t.Digest, t.Snapshot}] = true
	}
	return func(k kind) bool { return named[made{k.image, k.snapshot}] }
}

// warmUp makes one machine and puts it on its shelf.
func (e *Engine) warmUp(ctx context.Context, o order) error {
	unlock, err := e.names.Lock(ctx, o.template)
	if err != nil {
		return err
	}
	defer unlock()
	t, err := e.templates.Get(ctx, o.template)
	if err != nil || t.Digest != o.kind.image || t.Snapshot != o.kind.snapshot {
		return err // the next look sees that the kind is gone
	}
	w := &warm{id: sandbox.NewID(), kind: o.kind, limits: o.limits, base: base{Env: t.Env, User: t.User, Workdir: t.Workdir}}
	spec := driver.Spec{ID: w.id, Root: e.templates.RootPath(t), Hostname: string(w.id), Limits: o.limits}
	if w.machine, err = e.makeAhead(ctx, t, o.kind.class, spec); err != nil {
		return err
	}
	w.guest = guestclient.Of(w.machine)
	if err := rehearse(ctx, w.guest); err != nil {
		return errors.Join(err, e.endWarm(ctx, w))
	}
	watch, leave := context.WithCancel(ctx)
	w.leave = leave
	if !e.pool.put(w) {
		leave()
		return e.endWarm(ctx, w)
	}
	e.tasks.Go(func() { e.watchWarm(watch, w) })
	return nil
}

// rehearsalTime bounds a rehearsal.
const rehearsalTime = 30 * time.Second

// rehearse runs a program in a machine that nobody has, and lets its guest forget it:
// the first one takes longer than all others. An image need not have the program.
func rehearse(ctx context.Context, g *guestclient.Client) (err error) {
	ctx, cancel := context.WithTimeout(ctx, rehearsalTime)
	defer cancel()
	events, err := g.Start(ctx, sandbox.Command{Argv: []string{"true"}, Lossless: true})
	var e sandbox.Event
	if err == nil {
		defer func() { err = errors.Join(err, events.Close()) }()
		e, err = events.Recv()
	}
	switch kind := sandbox.KindOf(err); {
	case kind == sandbox.NotFound, kind == sandbox.Invalid, kind == sandbox.Unavailable:
		return nil // a machine that has ended is noticed by its watch
	case err != nil:
		return err
	case e.Started == nil:
		return sandbox.Errorf("rehearse", sandbox.Internal, "the guest says nothing of the program")
	}
	process := e.Started.ID
	for e.Exit == nil {
		if e, err = events.Recv(); err != nil {
			return err
		}
	}
	_, err = g.Forget(ctx, process)
	return err
}

// makeAhead makes a machine of a template: anew, or as it was when what it starts
// was ready.
func (e *Engine) makeAhead(ctx context.Context, t sandbox.Template, class string, spec driver.Spec) (driver.Machine, error) {
	if t.Snapshot == "" {
		return e.drivers[class].Create(ctx, spec)
	}
	sh, err := e.loadShot(ctx, t.Account, t.Snapshot)
	if err != nil {
		return nil, err
	}
	return e.restoreShot(ctx, sh, spec)
}

// watchWarm sees to a machine that ends while it waits.
func (e *Engine) watchWarm(ctx context.Context, w *warm) {
	if _, err := w.machine.Wait(ctx); err != nil {
		return // claimed, drained, or the engine closes
	}
	if e.pool.lost(w) {
		e.endAll(e.ctx, []*warm{w})
		signal(e.pool.poke)
	}
}

// drainPool ends all that wait: nobody would take them up again.
func (e *Engine) drainPool() {
	ctx, cancel := bounded(e.ctx, stopTime)
	defer cancel()
	e.endAll(ctx, e.pool.close())
}

// endAll ends machines. What cannot be ended now is swept when the server starts.
func (e *Engine) endAll(ctx context.Context, all []*warm) {
	for _, w := range all {
		if err := e.endWarm(ctx, w); err != nil {
			e.log.Warn("end a machine that waited", "machine", w.id, "error", err)
		}
	}
}

func (e *Engine) endWarm(ctx context.Context, w *warm) error {
	ctx, cancel := bounded(ctx, stopTime)
	defer cancel()
	return errors.Join(w.guest.Close(), w.machine.Stop(ctx))
}
