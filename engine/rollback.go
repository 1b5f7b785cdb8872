package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

// Rollback takes a sandbox back to a snapshot of its account: same id, same name,
// and all that it was since is gone. One that ran runs again when Rollback
// returns; another is as the snapshot was kept, paused or stopped. Streams break.
//
// Everything that the snapshot needs is fetched and checked before anything is
// touched. Then the old machine ends, and the sandbox is on record as put aside
// at the snapshot, from which it wakes as from a pause: whatever comes between,
// there is the old state or the new one.
//
// Conflict: it failed, is starting, or is of another class. Exhausted: its limits
// are below what the snapshot holds. Unsupported: the snapshot does not fit this
// host.
func (e *Engine) Rollback(ctx context.Context, id string, req sandbox.RollbackRequest) (sandbox.Sandbox, error) {
	const op = "roll back"
	done, err := e.task()
	if err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	defer done()
	ctx, cancel := e.whileOpen(ctx)
	defer cancel()
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, known(id), err)
	}
	s, err := e.rollback(ctx, sid, req.Snapshot)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, sid, err)
	}
	return s.Sandbox, nil
}

func (e *Engine) rollback(ctx context.Context, id sandbox.ID, given string) (_ *stored, err error) {
	t := e.timed("rollback")
	defer t.end(&err)
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return nil, err
	}
	defer unlock()
	s, err := e.loadMended(ctx, id)
	if err != nil {
		return nil, err
	}
	sh, err := e.shotIn(ctx, s.Account, given) // which need not be the operator's own
	if err != nil {
		return nil, err
	}
	dir, release, err := e.fetchFor(ctx, sh, s)
	if err != nil {
		return nil, err
	}
	defer release()
	t.stage("fetch")
	running := s.State == sandbox.Running
	if err := e.replace(ctx, s, sh); err != nil {
		return nil, err
	}
	t.stage("replace")
	if !running {
		return s, nil
	}
	if err := e.runAgain(ctx, s, sh, dir); err != nil {
		return nil, &sandbox.Error{Op: "wake it again", Err: err, Hint: "it has been taken back, and is " + string(s.State) + ": berth start wakes it once the cause is gone"}
	}
	return s, nil
}

// runAgain wakes what has just been taken back, if its account's quota still has
// room for it.
func (e *Engine) runAgain(ctx context.Context, s *stored, sh *shot, dir string) error {
	awake := *s
	awake.State = sandbox.Running
	if err := e.admit(ctx, &awake); err != nil {
		return err
	}
	_, err := e.takeFrom(ctx, s, sh, dir)
	if err != nil && s.Doing == nil {
		e.ledger.note(s)
	}
	return err
}

// fetchFor fetches a snapshot for a sandbox that is to go on from it, and checks all
// that can be checked before.
func (e *Engine) fetchFor(ctx context.Context, sh *shot, s *stored) (dir string, release func(), err error) {
	switch {
	case !s.living() || s.State == sandbox.Starting:
		return "", nil, notRunning(s)
	case !slices.Equal(s.Volumes, sh.Volumes):
		return "", nil, &sandbox.Error{Op: "check snapshot", Kind: sandbox.Conflict, Err: errors.New("it shows other volumes than the sandbox has"),
			Hint: "create a sandbox from it: berth create --snapshot"}
	case s.Class != sh.Class:
		return "", nil, &sandbox.Error{Op: "check snapshot", Kind: sandbox.Conflict, Err: fmt.Errorf("it is of class %q, and the sandbox of %q", sh.Class, s.Class),
			Hint: "create a sandbox from it: berth create --snapshot"}
	}
	if err := e.fits(ctx, sh, s.Limits); err != nil {
		return "", nil, err
	}
	return e.take(ctx, sh)
}

// fits checks a snapshot against this host and the limits of who is to use it.
func (e *Engine) fits(ctx context.Context, sh *shot, l sandbox.Limits) error {
	d, err := e.snapper(sh.Class)
	if err != nil {
		return err
	}
	if err := d.Fits(sh.About); err != nil {
		return &sandbox.Error{Op: "check snapshot", Err: err}
	}
	if sh.About.Memory > l.MemoryBytes || sh.About.Disk > l.DiskBytes {
		return &sandbox.Error{Op: "check snapshot", Kind: sandbox.Exhausted,
			Err:  fmt.Errorf("it holds %d MiB of memory and %d MiB of files; the limits are %d and %d", sh.About.Memory>>20, sh.About.Disk>>20, l.MemoryBytes>>20, l.DiskBytes>>20),
			Hint: "raise memory_bytes and disk_bytes"}
	}
	_, err = e.rootOf(ctx, sh)
	return err
}

// rootOf finds the root image that a snapshot needs.
func (e *Engine) rootOf(ctx context.Context, sh *shot) (path string, err error) {
	t, err := e.templates.Get(ctx, sh.Image)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return "", &sandbox.Error{Op: "find its root", Kind: sandbox.Unavailable, Err: err,
			Hint: fmt.Sprintf("the snapshot needs the image %s of template %s: bring that to this server", sh.Image, sh.Template)}
	}
	if err != nil {
		return "", err
	}
	return e.templates.RootPath(t), nil
}

// take fetches what a snapshot holds.
func (e *Engine) take(ctx context.Context, sh *shot) (dir string, release func(), err error) {
	dir, _, release, err = e.takeEarly(ctx, sh, "")
	return dir, release, err
}

// takeEarly is take, but a file of that name may be on its way yet; then fill is set.
func (e *Engine) takeEarly(ctx context.Context, sh *shot, late string) (dir string, fill *snapshot.Filling, release func(), err error) {
	a, err := e.archived()
	if err != nil {
		return "", nil, nil, err
	}
	if late == "" {
		dir, release, err = a.Take(ctx, sh.Manifest)
	} else {
		dir, fill, release, err = a.TakeEarly(ctx, sh.Manifest, late)
	}
	if err == nil {
		return dir, fill, release, nil
	}
	if _, lerr := e.loadShot(ctx, sh.Account, sh.ID); sandbox.KindOf(lerr) == sandbox.NotFound {
		return "", nil, nil, lerr // it was removed meanwhile
	}
	return "", nil, nil, fail("fetch snapshot "+string(sh.ID), "", fromArchive(err))
}

// replace ends what a sandbox is and puts it on record as put aside at a snapshot.
func (e *Engine) replace(ctx context.Context, s *stored, sh *shot) error {
	unlock, err := e.shots.Lock(ctx, sh.key())
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := e.loadShot(ctx, sh.Account, sh.ID); err != nil {
		return err
	}
	if l := e.held(s.ID); l != nil {
		if _, err := l.close(ctx, nil); err != nil {
			return err
		}
		l.part(asideAs(sh))
		e.measure(ctx, s.ID, l) // the counters end with the machine
	}
	ctx, cancel := bounded(ctx, stopTime)
	defer cancel()
	err = e.intend(ctx, s, doing{Verb: "rollback", Snapshot: sh.ID})
	if err == nil {
		err = e.finishRollback(ctx, s, sh)
	}
	if err == nil {
		return nil
	}
	if aerr := e.again(ctx, s); aerr != nil {
		return fmt.Errorf("%w (and its undoing: %w)", err, aerr)
	}
	if s.From == sh.ID {
		return nil // it was written after all
	}
	if l := e.held(s.ID); l != nil {
		l.reopen()
	}
	return err
}

// asideAs is the state of a sandbox that has yet to wake from a snapshot.
func asideAs(sh *shot) sandbox.State {
	if sh.Keep == sandbox.KeepDisk {
		return sandbox.Stopped
	}
	return sandbox.Paused
}

// finishRollback takes a sandbox to the snapshot that its record says it is being
// taken back to.
func (e *Engine) finishRollback(ctx context.Context, s *stored, sh *shot) error {
	if err := e.endMachine(ctx, s); err != nil {
		return err
	}
	next := *s
	next.From, next.Snapshot, next.Template, next.Image = sh.ID, sh.ID, sh.Template, sh.Image
	next.setBase(sh.Base)
	next.Trust = nil // the snapshot may be from before it, or from another sandbox
	if err := e.transition(ctx, &next, asideAs(sh), "taken back to snapshot "+string(sh.ID), goneOps(s.ID)...); err != nil {
		return err
	}
	*s = next
	return e.drop(s.ID)
}

// endMachine ends what there is of a sandbox's machine, live or put aside.
func (e *Engine) endMachine(ctx context.Context, s *stored) error {
	m, err := e.remains(ctx, s)
	if err != nil {
		return err
	}
	if m != nil {
		return m.Stop(ctx)
	}
	if d, ok := e.drivers[s.Class].(driver.Pauser); ok {
		return d.Discard(ctx, s.ID)
	}
	return nil
}

// mendRollback finishes a rollback that was cut short.
func (e *Engine) mendRollback(ctx context.Context, s *stored) error {
	sh, err := e.loadShot(ctx, s.Account, s.Doing.Snapshot)
	if err != nil {
		return err
	}
	return e.finishRollback(ctx, s, sh)
}

// wakeFrom makes a sandbox run that is put aside at a snapshot. The caller holds
// its lock and a slot.
func (e *Engine) wakeFrom(ctx context.Context, s *stored) (*live, error) {
	sh, err := e.loadShot(ctx, s.Account, s.From)
	if err != nil {
		return nil, &sandbox.Error{Op: "find its snapshot", Kind: sandbox.Internal, Err: err}
	}
	dir, release, err := e.fetchFor(ctx, sh, s)
	if err != nil {
		return nil, err
	}
	defer release()
	return e.takeFrom(ctx, s, sh, dir)
}

// takeFrom makes the machine of a sandbox that is put aside at a snapshot, whose
// folder is at hand. If it cannot be made, the sandbox stays as it is.
func (e *Engine) takeFrom(ctx context.Context, s *stored, sh *shot, dir string) (*live, error) {
	d, err := e.snapper(s.Class)
	if err != nil {
		return nil, err
	}
	root, err := e.rootOf(ctx, sh)
	if err != nil {
		return nil, err
	}
	if err := e.enforceAgain(ctx, s); err != nil {
		return nil, err
	}
	spec, err := e.machineSpec(ctx, s, root)
	if err != nil {
		return nil, err
	}
	if err := e.intend(ctx, s, doing{Verb: resumeVerbs[s.State], Aside: s.State}); err != nil {
		return e.ifRunning(ctx, s, err)
	}
	m, err := d.Restore(ctx, spec, dir)
	if err != nil {
		return e.ifRunning(ctx, s, e.notRestored(ctx, s, err))
	}
	l := e.keep(s.ID, m)
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	if err := e.transition(ctx, s, sandbox.Running, "", runningOps(s.ID, m.State())...); err != nil {
		return e.ifRunning(ctx, s, err)
	}
	e.attend(s.ID, l)
	return l, nil
}

// notRestored notes why a sandbox did not wake; it can be tried again.
func (e *Engine) notRestored(ctx context.Context, s *stored, err error) error {
	if ctx.Err() != nil {
		return err // nobody waited for the end; the record is mended
	}
	changed := *s
	changed.Doing, changed.Reason = nil, fmt.Sprintf("it could not be restored: %v", err)
	if cerr := e.commit(ctx, s, &changed, sandbox.ChangeUpdated); cerr != nil {
		return fmt.Errorf("%w (and its record: %w)", err, cerr)
	}
	return err
}
