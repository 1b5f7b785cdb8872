package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Times of looking for garbage by itself.
const (
	firstCollect = 10 * time.Minute // after the start, which has swept
	collectEvery = time.Hour
)

// Collect finds what nothing needs: machines without a record, and what drivers,
// templates and the archive keep for nobody. It is removed unless dry is set.
// Nothing goes that a record, a saved state or a verb under way needs: each thing
// is looked at again before it goes, with whoever could come to need it shut out.
//
// Only the operator may.
func (e *Engine) Collect(ctx context.Context, dry bool) (sandbox.Garbage, error) {
	const op = "collect garbage"
	if err := operatorOnly(ctx); err != nil {
		return sandbox.Garbage{}, fail(op, "", err)
	}
	done, err := e.task()
	if err != nil {
		return sandbox.Garbage{}, fail(op, "", err)
	}
	defer done()
	ctx, cancel := e.whileOpen(ctx)
	defer cancel()
	g, err := e.collect(ctx, dry, true)
	return g, fail(op, "", err)
}

// collect does the work. Without roots, those without a name stay: builds find in
// them what they have made before.
func (e *Engine) collect(ctx context.Context, dry, roots bool) (sandbox.Garbage, error) {
	g := sandbox.Garbage{Items: []sandbox.Litter{}, Removed: !dry}
	add := func(l sandbox.Litter) {
		g.Items = append(g.Items, l)
		g.Bytes += l.Bytes
	}
	if err := e.collectUnwanted(ctx, dry, add); err != nil {
		return g, err
	}
	for _, class := range e.classes {
		if err := e.collectMachines(ctx, class, dry, add); err != nil {
			return g, err
		}
	}
	if roots {
		if err := e.collectTemplates(ctx, dry, add); err != nil {
			return g, err
		}
	}
	if e.archive == nil {
		return g, nil
	}
	sweep := e.archive.Sweep
	if dry {
		sweep = e.archive.Unneeded
	}
	swept, err := sweep(ctx, e.liveManifests)
	if err == nil && swept.Blobs > 0 {
		add(sandbox.Litter{Kind: sandbox.LitterBlobs, Name: fmt.Sprintf("%d blobs", swept.Blobs), Bytes: swept.Bytes})
	}
	return g, fromArchive(err)
}

// collectUnwanted ends the machines that run and that no record knows: each was to be
// undone when it could be neither recorded nor stopped.
func (e *Engine) collectUnwanted(ctx context.Context, dry bool, add func(sandbox.Litter)) error {
	for _, id := range e.holds() {
		gone, err := e.endUnwanted(ctx, id, dry)
		if err != nil {
			return err
		}
		if gone {
			add(sandbox.Litter{Kind: sandbox.LitterMachine, Name: string(id)})
		}
	}
	return nil
}

// endUnwanted ends one if it has no record. Its lock is held: whoever makes one holds
// it until the record is there.
func (e *Engine) endUnwanted(ctx context.Context, id sandbox.ID, dry bool) (gone bool, err error) {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return false, err
	}
	defer unlock()
	l := e.held(id)
	if l == nil {
		return false, nil
	}
	if _, err := e.load(ctx, id); sandbox.KindOf(err) != sandbox.NotFound {
		return false, err
	}
	if dry {
		return true, nil
	}
	if err := l.machine.Stop(ctx); err != nil {
		return false, err
	}
	e.release(id)
	return true, e.drop(id)
}

// collectMachines sees to what one driver keeps.
func (e *Engine) collectMachines(ctx context.Context, class string, dry bool, add func(sandbox.Litter)) error {
	tidy, ok := e.drivers[class].(driver.Tidier)
	if !ok {
		return nil
	}
	all, err := tidy.Litter(ctx)
	if err != nil {
		return err
	}
	for _, l := range all {
		gone := true
		if l.Kind == sandbox.LitterMachine {
			gone, err = e.collectMachine(ctx, class, sandbox.ID(l.Name), dry)
		} else if !dry {
			err = tidy.Clear(ctx, l)
		}
		switch {
		case sandbox.KindOf(err) == sandbox.Conflict: // somebody needs it again
		case err != nil:
			return err
		case gone:
			add(l)
		}
	}
	return nil
}

// collectMachine removes a machine that has no record. Its lock is held: whoever
// is about to give it one waits, or has done so.
func (e *Engine) collectMachine(ctx context.Context, class string, id sandbox.ID, dry bool) (gone bool, err error) {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return false, err
	}
	defer unlock()
	if _, err := e.load(ctx, id); sandbox.KindOf(err) != sandbox.NotFound {
		return false, err
	}
	if dry {
		return true, nil
	}
	p, ok := e.drivers[class].(driver.Pauser)
	if !ok {
		return false, nil
	}
	return true, p.Discard(ctx, id)
}

// Unnamed is a Templates that can say which roots Prune would remove.
type Unnamed interface {
	Unnamed(ctx context.Context) ([]sandbox.Litter, error)
}

// collectTemplates sees to roots without a name. Creates wait meanwhile: from when
// one has found its root until that is on record, it holds the template's lock.
// While a template is built nothing is done: its parts have no name yet.
func (e *Engine) collectTemplates(ctx context.Context, dry bool, add func(sandbox.Litter)) error {
	u, ok := e.templates.(Unnamed)
	if !ok {
		return nil
	}
	if !e.builds.TryLock() {
		return nil
	}
	defer e.builds.Unlock()
	all, err := u.Unnamed(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	unlock, err := e.lockTemplates(ctx, all)
	if err != nil {
		return err
	}
	defer unlock()
	roots, err := e.roots(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(l sandbox.Litter) bool { return roots[l.Name] })
	if !dry {
		gone, err := e.templates.Prune(ctx, func(digest string) bool { return roots[digest] })
		if err != nil {
			return err
		}
		all = slices.DeleteFunc(all, func(l sandbox.Litter) bool { return !slices.Contains(gone, l.Name) })
	}
	for _, l := range all {
		add(l)
	}
	return nil
}

// lockTemplates holds the locks of every template's name and of some roots.
func (e *Engine) lockTemplates(ctx context.Context, roots []sandbox.Litter) (unlock func(), err error) {
	named, err := e.templates.List(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range named {
		names = append(names, t.Name, t.Digest)
	}
	for _, l := range roots {
		names = append(names, l.Name)
	}
	slices.Sort(names) // two who do this at once do it in one order
	var all []func()
	unlock = func() {
		for _, u := range all {
			u()
		}
	}
	for _, n := range slices.Compact(names) {
		u, err := e.names.Lock(ctx, n)
		if err != nil {
			unlock()
			return nil, err
		}
		all = append(all, u)
	}
	return unlock, nil
}

// roots are the digests of the images that sandboxes, warm machines and snapshots
// need.
func (e *Engine) roots(ctx context.Context) (map[string]bool, error) {
	roots := map[string]bool{}
	if err := e.each(ctx, func(s *stored) error {
		if s.State != sandbox.Failed {
			roots[s.Image] = true
		}
		return nil
	}); err != nil {
		return nil, err
	}
	shots, err := e.shotsOf(ctx, "")
	for _, sh := range shots {
		roots[sh.Image] = true
	}
	return roots, err
}

// keepTidy collects garbage now and then, until the engine closes.
func (e *Engine) keepTidy() {
	wait := firstCollect
	for {
		rest(e.ctx, wait)
		wait = collectEvery
		if e.ctx.Err() != nil {
			return
		}
		g, err := e.collect(e.ctx, false, e.LowDisk())
		switch {
		case e.ctx.Err() != nil:
			return
		case err != nil:
			e.log.Error("collect garbage", "error", err, "again_in", collectEvery)
		case len(g.Items) > 0:
			e.log.Info("collected garbage", "things", len(g.Items), "bytes", g.Bytes)
		}
	}
}
