package gvisor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// forkPrefix begins the names of the folders in a machine's own that its forks
// use; one that is left is removed when the machine is taken up.
const forkPrefix = "fork-"

var _ driver.Forker = (*Driver)(nil)

// Fork implements driver.Forker. The children's engines are started first; then
// the machine stands still while its memory is written and its layer cloned; then
// the engines load that.
func (d *Driver) Fork(ctx context.Context, dm driver.Machine, specs []driver.Spec) (driver.Forks, error) {
	m, err := d.own(dm)
	if err != nil {
		return driver.Forks{}, &sandbox.Error{Op: "fork", Err: err}
	}
	defer d.shelf.yield()()
	trace := newStages()
	f, err := m.fork(ctx, specs, trace)
	f.Stages = trace.all()
	return f, fault("fork", m.id, err)
}

func (m *machine) fork(ctx context.Context, specs []driver.Spec, trace *stages) (driver.Forks, error) {
	return m.forkBy(ctx, specs, trace, (*aim).shoot)
}

// forkBy is fork by a shoot that may be another than the one of that name.
func (m *machine) forkBy(ctx context.Context, specs []driver.Spec, trace *stages, shoot func(*aim, context.Context, *image, func()) (time.Duration, error)) (f driver.Forks, err error) {
	if err := ctx.Err(); err != nil {
		return f, err
	}
	if err := m.whole(ctx); err != nil {
		return f, err
	}
	img, err := m.driver.describe(m.place, m.state, driver.KeepMemory)
	if err != nil {
		return f, err
	}
	var dir string
	if dir, err = os.MkdirTemp(m.place.dir, forkPrefix); err != nil {
		return f, err
	}
	defer os.RemoveAll(dir) // swept with the machine, or when it is next taken up
	memory, err := m.memoryFiles()
	if err != nil {
		return f, err
	}
	s, err := m.newScratch(memory)
	if err != nil {
		return f, err
	}
	img.layer, img.engine = filepath.Join(dir, layerName), filepath.Join(dir, engineName)
	if s != nil {
		defer s.close()
		img.engine = s.path()
	}
	if img.left, err = m.leave(memory); err != nil {
		return f, err
	}
	if img.left != nil {
		defer img.left.close()
	}
	// The machine is made ready while the children are.
	var a *aim
	var aiming sync.WaitGroup
	aiming.Go(func() { a, err = m.aim(ctx, &img, trace) })
	l := m.driver.newLitter(ctx, specs, img, trace)
	l.each(func(c *child) error { return c.enshell(ctx) })
	aiming.Wait()
	if err != nil {
		return f, l.abort(err)
	}
	if l.empty() {
		return driver.Forks{Each: l.forked}, a.rest()
	}
	if only := l.only(); only != nil {
		img.layer = only.place.layer() // where nothing is shared, one copy less
	}
	// The children are loaded while the machine goes on, and come to life while its
	// guest is told that all is as before: that takes the processor from them.
	var hatching sync.WaitGroup
	f.Pause, err = shoot(a, ctx, &img, func() {
		l.loading.Add(len(l.children))
		hatching.Go(func() { l.hatch(ctx, img) })
	})
	if err == nil && img.left != nil {
		err = m.ifAlive(m.widen(memory.Frozen))
	}
	l.loading.Wait()
	err = errors.Join(err, a.rest())
	hatching.Wait()
	if err != nil {
		return f, l.abort(err)
	}
	f.Each = l.forked
	return f, nil
}

// newScratch is a scratch for the machine's memory; nil if the host's has no
// room for it.
func (m *machine) newScratch(f memoryFiles) (*scratch, error) {
	need, err := m.toWriteOf(f)
	if err != nil {
		return nil, err
	}
	return newScratch(need)
}

// ForkSaved implements driver.Forker.
func (d *Driver) ForkSaved(ctx context.Context, id sandbox.ID, saved []byte, specs []driver.Spec) (driver.Forks, error) {
	const op = "fork"
	release, img, err := d.savedImage(id, saved)
	if err != nil {
		return driver.Forks{}, fault(op, id, err)
	}
	defer release()
	if err := ctx.Err(); err != nil {
		return driver.Forks{}, fault(op, id, err)
	}
	if img.about.Keep == driver.KeepMemory && !d.clones {
		p := d.place(id)
		if err := p.freezeSaved(); err != nil {
			return driver.Forks{}, fault(op, id, err)
		}
		if img.bases, err = p.bases(); err != nil {
			return driver.Forks{}, fault(op, id, err)
		}
	}
	defer d.shelf.yield()()
	trace := newStages()
	l := d.newLitter(ctx, specs, img, trace)
	l.loading.Add(len(l.children))
	l.hatch(ctx, img)
	return driver.Forks{Each: l.forked, Stages: trace.all()}, nil
}

// litter is the children of one fork.
type litter struct {
	ctx      context.Context // of the fork
	children []*child        // nil: it has failed, or has become a machine
	forked   []driver.Forked // in the order of children
	loading  sync.WaitGroup  // of children that hatch, and have not loaded yet
}

// newLitter makes what a child needs around its engine for each of specs.
func (d *Driver) newLitter(ctx context.Context, specs []driver.Spec, img image, trace *stages) *litter {
	l := &litter{ctx: ctx, children: make([]*child, len(specs)), forked: make([]driver.Forked, len(specs))}
	l.parallel(func(i int) {
		c, err := d.newChild(ctx, specs[i], img, trace)
		l.children[i], l.forked[i].Err = c, fault("fork", specs[i].ID, err)
	})
	return l
}

// parallel calls f for every child, a few at once: they share the processor.
func (l *litter) parallel(f func(i int)) {
	var g errgroup.Group
	g.SetLimit(2 * runtime.NumCPU())
	for i := range l.children {
		g.Go(func() error { f(i); return nil })
	}
	g.Wait()
}

// each does a step with every child that is left. One that fails is undone.
func (l *litter) each(step func(*child) error) {
	l.parallel(func(i int) {
		c := l.children[i]
		if c == nil {
			return
		}
		if err := step(c); err != nil {
			l.children[i], l.forked[i].Err = nil, fault("fork", c.spec.ID, c.fail(l.ctx, err))
		}
	})
}

// hatch makes every child that is left a machine. Each, left or not, has been added to
// loading.
func (l *litter) hatch(ctx context.Context, img image) {
	l.parallel(func(i int) {
		loaded := sync.OnceFunc(l.loading.Done)
		defer loaded()
		c := l.children[i]
		if c == nil {
			return
		}
		m, err := c.hatch(ctx, img, loaded)
		if l.children[i] = nil; err != nil {
			l.forked[i].Err = fault("fork", c.spec.ID, err)
			return
		}
		l.forked[i].Machine = m
	})
}

// abort undoes every child, since the machine could not be copied.
func (l *litter) abort(err error) error {
	l.each(func(*child) error { return err })
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), undoTime)
	defer cancel()
	for _, f := range l.forked {
		if f.Machine != nil {
			err = errors.Join(err, f.Machine.Stop(ctx))
		}
	}
	return err
}

// only is the child of a litter of one.
func (l *litter) only() *child {
	if len(l.children) != 1 {
		return nil
	}
	return l.children[0]
}

func (l *litter) empty() bool {
	for _, c := range l.children {
		if c != nil {
			return false
		}
	}
	return true
}

// removeForks removes what an earlier process that ended in the midst of a fork
// has left in a machine's folder.
func (p place) removeForks() error {
	left, err := filepath.Glob(filepath.Join(p.dir, forkPrefix+"*"))
	if err != nil {
		return err
	}
	return removeAll(left...)
}
