package engine

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

const (
	forkCommits = 8  // children that are undone, or made of a snapshot, at once
	forkRecords = 64 // whose records are written at once, which costs as much as one
)

// brood is the children of one fork, from their plans to their outcomes.
type brood struct {
	e    *Engine
	each []*unborn

	// plain children go on record while their machines are made: none has a name that
	// another may have, and nothing of a policy that needs more than the gateway. So
	// nothing but a disk that fails keeps them from it.
	plain bool
}

// unborn is one of them. With err set it takes no further part, and is undone.
type unborn struct {
	s       *stored
	spec    driver.Spec
	machine driver.Machine // nil before there is one
	undo    undo
	unlock  func() // nil before it is locked
	err     error

	unrecorded error // why it is not on record
	taken      bool  // because another has its place
}

// conceive plans the children of s. What a sandbox is made of, and what it may
// reach, its children have too; a name they have only if one is given.
func (e *Engine) conceive(s *stored, req sandbox.ForkRequest) (*brood, error) {
	metadata, err := (&sandbox.Update{Metadata: req.Metadata}).Merge(s.Metadata)
	if err != nil {
		return nil, err
	}
	b := &brood{e: e, plain: len(req.Names) == 0 && !s.inspected()}
	now := e.now().UTC().Round(0)
	for i := range req.Count {
		child := &stored{Sandbox: s.Sandbox, Base: s.Base, Trust: s.Trust}
		child.ID, child.Parent, child.Name = sandbox.NewID(), s.ID, ""
		child.State, child.Reason = sandbox.Starting, ""
		child.Created, child.Updated, child.Started = now, now, time.Time{}
		child.Metadata = metadata
		if i < len(req.Names) {
			child.Name = req.Names[i]
		}
		if req.Tags != nil {
			child.Tags = req.Tags
		}
		if req.Idle != nil {
			child.Idle = req.Idle
		}
		if req.Lifetime != nil {
			child.Lifetime = req.Lifetime
		}
		if req.Wake != nil {
			child.Wake = req.Wake
		}
		b.each = append(b.each, &unborn{s: child})
	}
	return b, nil
}

// bear takes the children from their plans to running sandboxes. Those that do
// not get there are undone.
func (b *brood) bear(ctx context.Context, copies func(context.Context, []driver.Spec) (driver.Forks, error)) driver.Forks {
	b.with(func(u *unborn) error { return b.plan(ctx, u) })
	recorded := b.record(ctx)
	if !b.plain {
		recorded()
	}
	var specs []driver.Spec
	var born []*unborn
	for _, u := range b.each {
		if u.err == nil {
			specs, born = append(specs, u.spec), append(born, u)
		}
	}
	var got driver.Forks
	if len(specs) > 0 {
		var err error
		got, err = copies(ctx, specs)
		if err == nil && len(got.Each) != len(specs) {
			err = sandbox.Errorf("", sandbox.Internal, "%d outcomes for %d children", len(got.Each), len(specs))
		}
		for i, u := range born {
			if u.err = err; err == nil {
				b.deliver(u, got.Each[i])
			}
		}
	}
	recorded()
	b.with(func(u *unborn) error { return b.begin(ctx, u) })
	b.finish(ctx)
	return got
}

// deliver takes what became of a child's machine.
func (b *brood) deliver(u *unborn, got driver.Forked) {
	u.machine, u.err = got.Machine, got.Err
	if u.machine != nil {
		u.undo.add("stop the machine", func(ctx context.Context) error { return b.e.discard(ctx, u.s, u.machine) })
	}
}

// with does a step with every child that has not failed.
func (b *brood) with(step func(*unborn) error) {
	var g errgroup.Group
	g.SetLimit(forkRecords)
	for _, u := range b.each {
		if u.err == nil {
			g.Go(func() error { u.err = step(u); return nil })
		}
	}
	g.Wait()
}

// plan reserves what a child needs before it goes on record.
func (b *brood) plan(ctx context.Context, u *unborn) (err error) {
	e := b.e
	if u.unlock, err = e.sandboxes.Lock(ctx, string(u.s.ID)); err != nil {
		return err
	}
	if err := e.admit(ctx, u.s); err != nil {
		return err
	}
	u.undo.add("give back what it was admitted to", func(context.Context) error { e.forgetUnmade(u.s); return nil })
	if u.spec, err = e.spec(ctx, u.s); err != nil {
		return err
	}
	u.undo.add("erase the record", func(ctx context.Context) error {
		if u.taken {
			return nil
		}
		return e.erase(ctx, u.s)
	})
	if !b.plain {
		return nil
	}
	u.undo.add("forget its policy", func(context.Context) error { e.release(u.s.ID); return nil })
	return e.enforce(ctx, u.s) // before its machine is there, whenever that is
}

// record puts the children on record, as starting, with what they inherit. What is
// returned waits for that, and may be called again.
func (b *brood) record(ctx context.Context) (wait func()) {
	var planned []*unborn
	for _, u := range b.each {
		if u.err == nil {
			planned = append(planned, u)
		}
	}
	done := make(chan struct{})
	go func() { // ends with the commits, which bear waits for
		defer close(done)
		var g errgroup.Group
		g.SetLimit(forkRecords)
		for _, u := range planned {
			g.Go(func() error { u.unrecorded = b.register(ctx, u); return nil })
		}
		g.Wait()
	}()
	return sync.OnceFunc(func() {
		<-done
		for _, u := range planned {
			if u.err == nil {
				u.err = u.unrecorded
			}
		}
	})
}

// register puts a child on record.
func (b *brood) register(ctx context.Context, u *unborn) error {
	if err := b.e.transition(ctx, u.s, sandbox.Starting, ""); err != nil {
		u.taken = sandbox.KindOf(err) == sandbox.Conflict // an unknown outcome is taken back
		return err
	}
	if b.plain {
		return b.e.inherit(ctx, u.s.Parent, u.s.ID)
	}
	return b.e.endow(ctx, u.s.Parent, u.s)
}

// begin puts on record that a child runs whose machine is there. What has come so
// far is not given up when ctx ends.
func (b *brood) begin(ctx context.Context, u *unborn) error {
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	return b.e.transition(ctx, u.s, sandbox.Running, "", record.Op{Key: machineKey(u.s.ID), Value: u.machine.State()})
}

// finish undoes the children that have failed, and lets others at the rest.
func (b *brood) finish(ctx context.Context) {
	var g errgroup.Group
	g.SetLimit(forkCommits)
	for _, u := range b.each {
		g.Go(func() error {
			if u.err != nil {
				// The driver sees a context that ended; its cause says why.
				if cause := context.Cause(ctx); cause != nil && errors.Is(u.err, ctx.Err()) {
					u.err = cause
				}
				u.err = u.undo.run(ctx, u.err)
				b.e.forgetUnmade(u.s)
			} else {
				b.e.hold(u.s.ID, u.machine)
			}
			if u.unlock != nil {
				u.unlock()
			}
			return nil
		})
	}
	g.Wait()
}

// outcome is what became of each child. If there is none, the error says why.
func (b *brood) outcome() ([]sandbox.Forked, error) {
	var all []sandbox.Forked
	var first error
	some := false
	for _, u := range b.each {
		if u.err == nil {
			all, some = append(all, sandbox.Forked{Sandbox: &u.s.Sandbox}), true
			continue
		}
		all = append(all, sandbox.Forked{Err: fail("fork", u.s.ID, u.err)})
		if first == nil {
			first = u.err
		}
	}
	if !some {
		return nil, first
	}
	return all, nil
}
