package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/berth-dev/berth/sandbox"
)

// recoveries is how many machines Open recovers at once.
const recoveries = 8

// Open takes up where the process before left off. A sandbox that was starting
// is gone: one is usable or there is none. What else was under way is mended, as
// the table of doing has it. One that ran is adopted, or Failed if
// its machine is gone; if its driver cannot tell now, it stays as it is and the
// next verb tries again. Then the drivers and the
// templates remove what nothing owns.
func (e *Engine) Open(ctx context.Context) error {
	const op = "open engine"
	done, err := e.task()
	if err != nil {
		return fail(op, "", err)
	}
	defer done()
	if err := e.openJournal(ctx); err != nil {
		return fail(op, "", err)
	}
	if err := e.noteBoot(ctx); err != nil {
		return fail(op, "", err)
	}
	if err := e.giveOwners(ctx); err != nil {
		return fail(op, "", err)
	}
	kept, err := e.resume(ctx)
	if err != nil {
		return fail(op, "", err)
	}
	var keep []sandbox.ID
	roots := map[string]bool{}
	for _, s := range kept {
		keep = append(keep, s.ID)
		roots[s.Image] = true
	}
	shots, err := e.shotsOf(ctx, "")
	if err != nil {
		return fail(op, "", err)
	}
	for _, sh := range shots {
		roots[sh.Image] = true
	}
	for _, class := range e.classes {
		swept, err := e.drivers[class].Sweep(ctx, keep)
		if err != nil {
			return fail(op, "", err)
		}
		if len(swept) > 0 {
			e.log.Info("swept what no sandbox owns", "class", class, "ids", swept)
		}
	}
	if _, err = e.templates.Prune(ctx, func(digest string) bool { return roots[digest] }); err != nil {
		return fail(op, "", err)
	}
	if err := e.tidyVolumes(ctx); err != nil {
		return fail(op, "", err)
	}
	if err := e.keepBoot(ctx); err != nil {
		return fail(op, "", err)
	}
	return fail(op, "", e.attendAll(ctx, kept))
}

// attendAll begins what goes on beside the verbs: timers and webhooks.
func (e *Engine) attendAll(ctx context.Context, kept []*stored) error {
	if err := e.openMeter(ctx); err != nil {
		return err
	}
	if err := e.tidyLacking(ctx); err != nil {
		return err
	}
	if err := e.openArchive(ctx); err != nil {
		return err
	}
	if err := e.sweepCheckpoints(ctx); err != nil {
		return err
	}
	if err := e.sweepStarted(ctx); err != nil {
		return err
	}
	for _, s := range kept {
		e.timers.plan(s)
	}
	e.tasks.Go(func() { e.goOn(e.fallen) })
	e.tasks.Go(e.keepTime)
	e.tasks.Go(e.keepTidy)
	if e.room.Of != nil {
		e.tasks.Go(e.keepRoom)
	}
	if e.pool.enabled() {
		e.tasks.Go(e.keepPool)
	}
	return e.openHooks(ctx)
}

// resume brings every record up to date and returns the sandboxes whose machines
// and roots are to be left alone.
func (e *Engine) resume(ctx context.Context) ([]*stored, error) {
	var all []*stored
	if err := e.each(ctx, func(s *stored) error { all = append(all, s); e.ledger.note(s); return nil }); err != nil {
		return nil, err
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		kept []*stored
		errs []error
		turn = make(chan struct{}, recoveries)
	)
	for _, s := range all {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			ran := s.State == sandbox.Running
			err := e.resumeOne(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			if ran && s.From != "" {
				e.fallen = append(e.fallen, s.ID)
			}
			if err != nil {
				errs = append(errs, fail("resume", s.ID, err))
			}
			if s.State != sandbox.Deleted && s.State != sandbox.Failed {
				kept = append(kept, s)
			}
		})
	}
	wg.Wait()
	return kept, errors.Join(errs...)
}

func (e *Engine) resumeOne(ctx context.Context, s *stored) error {
	if s.Build && s.State != sandbox.Starting { // the build ended with the server
		err := e.remove(ctx, s.ID, "its build was cut short", nil)
		s.State = sandbox.Deleted
		return err
	}
	unlock, err := e.sandboxes.Lock(ctx, string(s.ID))
	if err != nil {
		return err
	}
	defer unlock()
	if s.Doing != nil {
		if err := e.mend(ctx, s); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			e.log.Warn("what was under way with a sandbox cannot be settled now", "sandbox", s.ID, "verb", s.Doing.Verb, "error", err)
			return nil // the next verb tries again
		}
	}
	switch s.State {
	case sandbox.Starting:
		return e.transition(ctx, s, sandbox.Deleted, "")
	case sandbox.Running:
		if e.held(s.ID) != nil {
			return nil
		}
		_, err := e.adopt(ctx, s)
		if err == nil || s.State != sandbox.Running {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// Its machine may be well: the next verb tries again and says what is wrong.
		e.log.Warn("a sandbox's machine cannot be adopted now", "sandbox", s.ID, "error", err)
	}
	return nil
}
