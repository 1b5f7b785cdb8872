package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/snapshot"
)

// maxAbout bounds the bytes of what a captured folder says of itself.
const maxAbout = 64 << 10

// Snapshot keeps a sandbox as it is at one moment. One that runs goes on with
// everything attached to it; one that is paused or stopped is copied as it lies,
// without waking. A failure at any step leaves nothing.
//
// Conflict: the name is taken, it failed or is starting, or what is asked for was
// not kept. Exhausted: no room, or the account's quota. Unsupported: its class
// cannot be kept.
func (e *Engine) Snapshot(ctx context.Context, id string, req sandbox.SnapshotRequest) (sandbox.Snapshot, error) {
	const op = "snapshot"
	done, err := e.task()
	if err != nil {
		return sandbox.Snapshot{}, fail(op, "", err)
	}
	defer done()
	ctx, cancel := e.whileOpen(ctx)
	defer cancel()
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return sandbox.Snapshot{}, fail(op, known(id), err)
	}
	sh, err := e.snapshot(ctx, sid, req)
	if err != nil {
		return sandbox.Snapshot{}, fail(op, sid, err)
	}
	return sh.Snapshot, nil
}

// whileOpen is ctx until the engine closes.
func (e *Engine) whileOpen(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	detach := context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })
	return ctx, func() { detach(); cancel(nil) }
}

func (e *Engine) snapshot(ctx context.Context, id sandbox.ID, req sandbox.SnapshotRequest) (_ *shot, err error) {
	t := e.timed("snapshot")
	defer t.end(&err)
	if err := req.Check(); err != nil {
		return nil, err
	}
	a, err := e.archived()
	if err != nil {
		return nil, err
	}
	give, err := e.keeping.take(ctx)
	if err != nil {
		return nil, err
	}
	defer give()
	t.stage("queue")
	sh, dir, err := e.capture(ctx, a, id, req)
	if err != nil {
		return nil, err
	}
	t.stage("capture")
	if dir == "" { // it is as a snapshot that is kept already
		return sh, e.register(ctx, sh, sh.Stored)
	}
	about, err := json.Marshal(sh)
	if err != nil {
		return nil, errors.Join(sandbox.Errorf("encode snapshot", sandbox.Internal, "%w", err), a.Discard(dir))
	}
	saved, err := a.Keep(ctx, dir, about, e.baseOf(ctx, sh)...)
	if err != nil {
		e.garbage.poke()
		return nil, fromArchive(err)
	}
	t.stage("keep")
	return sh, e.registerSaved(ctx, sh, saved)
}

// registerSaved puts a snapshot on record whose folder is kept; otherwise that is
// given up.
func (e *Engine) registerSaved(ctx context.Context, sh *shot, saved *snapshot.Saved) error {
	defer saved.Release()
	sh.Manifest, sh.Bytes, sh.Stored = saved.Digest, saved.Bytes, saved.Stored
	err := e.register(ctx, sh, saved.Stored)
	if err != nil {
		defer e.garbage.poke()
		return errors.Join(err, e.archive.Forget(saved.Digest))
	}
	return nil
}

// capture writes a sandbox down into a folder, and plans the snapshot. Without a
// folder the snapshot is planned whole: the sandbox has yet to wake from one.
func (e *Engine) capture(ctx context.Context, a Archive, id sandbox.ID, req sandbox.SnapshotRequest) (_ *shot, dir string, err error) {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return nil, "", err
	}
	defer unlock()
	s, err := e.loadMended(ctx, id)
	if err != nil {
		return nil, "", err
	}
	if err := e.maySnapshot(ctx, s, req); err != nil {
		return nil, "", err
	}
	if err := e.roomToCopy(ctx, s); err != nil {
		return nil, "", err
	}
	sh := e.planShot(s, req)
	if s.From != "" && s.State != sandbox.Running {
		return sh, "", e.copyShot(ctx, sh, s, req.Keep)
	}
	write, err := e.writer(ctx, s, req.Keep)
	if err != nil {
		return nil, "", err
	}
	if dir, err = a.Fresh(); err != nil {
		return nil, "", fromArchive(err)
	}
	err = write(ctx, dir)
	if err == nil {
		sh.About, err = readAbout(dir)
	}
	if err != nil {
		return nil, "", errors.Join(err, a.Discard(dir))
	}
	sh.Keep, sh.Engine, sh.Limits, sh.Taken = sandbox.Keep(sh.About.Keep), sh.About.Engine, sh.About.Limits, sh.About.Taken.UTC().Round(0)
	return sh, dir, nil
}

// maySnapshot refuses early what would be refused after all the work.
func (e *Engine) maySnapshot(ctx context.Context, s *stored, req sandbox.SnapshotRequest) error {
	if err := e.nameIsFree(ctx, s.Account, req.Name); err != nil {
		return err
	}
	all, err := e.shotsOf(ctx, s.Account)
	if err != nil {
		return err
	}
	if len(all) >= maxShots {
		return &sandbox.Error{Op: "check snapshots", Kind: sandbox.Exhausted, Err: fmt.Errorf("the account has %d", len(all)), Hint: "remove some first"}
	}
	what := "a snapshot of " + string(s.ID)
	defer e.ledger.set(what, s.Account, sandbox.Quota{})
	return e.admitUse(ctx, s.Account, what, sandbox.Quota{SnapshotBytes: 1})
}

func (e *Engine) planShot(s *stored, req sandbox.SnapshotRequest) *shot {
	now := e.now().UTC().Round(0)
	return &shot{Base: s.Base, Env: s.Env, Volumes: s.Volumes, Build: s.Build, Snapshot: sandbox.Snapshot{
		ID: sandbox.NewID(), Name: req.Name, Account: s.Account, Sandbox: s.ID, Parent: s.Snapshot, Auto: req.Auto, Template: s.Template, Image: s.Image,
		Class: s.Class, Limits: s.Limits, Created: now, Taken: now, Expires: e.expiry(now, req.TTLSeconds),
	}}
}

// copyShot makes a plan one of what another snapshot holds.
func (e *Engine) copyShot(ctx context.Context, sh *shot, s *stored, keep sandbox.Keep) error {
	from, err := e.loadShot(ctx, s.Account, s.From)
	if err != nil {
		return err
	}
	if keep != "" && keep != from.Keep {
		return notKept(s, from.Keep)
	}
	sh.Keep, sh.Engine, sh.Limits, sh.About, sh.Manifest = from.Keep, from.Engine, from.Limits, from.About, from.Manifest
	sh.Bytes, sh.Stored, sh.Taken = from.Bytes, from.Stored, from.Taken
	return nil
}

// writer is what writes a sandbox down. The caller holds its lock.
func (e *Engine) writer(ctx context.Context, s *stored, keep sandbox.Keep) (func(ctx context.Context, dir string) error, error) {
	d, err := e.snapper(s.Class)
	if err != nil {
		return nil, err
	}
	switch s.State {
	case sandbox.Running:
		l := e.held(s.ID)
		if l == nil {
			if l, err = e.adopt(ctx, s); err != nil {
				return nil, err
			}
		}
		if keep == "" {
			keep = sandbox.KeepMemory
		}
		return func(ctx context.Context, dir string) error {
			return d.Capture(ctx, l.machine, driver.Keep(keep), dir)
		}, nil
	case sandbox.Paused, sandbox.Stopped:
		has := map[sandbox.State]sandbox.Keep{sandbox.Paused: sandbox.KeepMemory, sandbox.Stopped: sandbox.KeepDisk}[s.State]
		if keep != "" && keep != has {
			return nil, notKept(s, has)
		}
		saved, err := e.records.Get(ctx, savedKey(s.ID))
		if err != nil {
			return nil, fail("find what was kept", "", err)
		}
		return func(ctx context.Context, dir string) error { return d.CaptureSaved(ctx, s.ID, saved.Value, dir) }, nil
	}
	return nil, notRunning(s)
}

func notKept(s *stored, has sandbox.Keep) error {
	return &sandbox.Error{Op: "check keep", Kind: sandbox.Conflict, Err: fmt.Errorf("it is %s: its %s was kept", s.State, has),
		Hint: "leave keep out for what there is, or wake it first"}
}

// readAbout reads what a captured folder says of itself.
func readAbout(dir string) (driver.About, error) {
	const op = "read " + driver.AboutName
	var about driver.About
	f, err := os.Open(filepath.Join(dir, driver.AboutName))
	if err != nil {
		return about, sandbox.Errorf(op, sandbox.Internal, "%w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxAbout))
	if err == nil {
		err = json.Unmarshal(b, &about)
	}
	if err != nil {
		return about, sandbox.Errorf(op, sandbox.Internal, "%w", err)
	}
	return about, nil
}

// baseOf is what a snapshot probably shares most chunks with.
func (e *Engine) baseOf(ctx context.Context, sh *shot) []blob.Digest {
	if sh.Parent == "" {
		return nil
	}
	parent, err := e.loadShot(ctx, sh.Account, sh.Parent)
	if err != nil {
		return nil // it spares work, and nothing else
	}
	return []blob.Digest{parent.Manifest}
}

// register puts a snapshot on record, within its account's quota.
func (e *Engine) register(ctx context.Context, sh *shot, stored int64) error {
	if err := e.admitUse(ctx, sh.Account, sh.key(), sandbox.Quota{SnapshotBytes: stored}); err != nil {
		return err
	}
	err := e.commitWithSandbox(ctx, sh)
	if err != nil {
		e.ledger.set(sh.key(), sh.Account, sandbox.Quota{})
		return err
	}
	e.planExpiry(sh.key(), sh.Expires)
	return nil
}

// commitWithSandbox puts a snapshot on record together with the sandbox that it
// is of, if that is still there and the snapshot is the newest of it.
func (e *Engine) commitWithSandbox(ctx context.Context, sh *shot) error {
	unlock, err := e.sandboxes.Lock(ctx, string(sh.Sandbox))
	if err != nil {
		return err
	}
	defer unlock()
	s, err := e.loadMended(ctx, sh.Sandbox)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return e.commitShot(ctx, sh, nil)
	}
	if err != nil {
		return err
	}
	if s.Snapshot != sh.Parent || !s.living() {
		s = nil // it has been taken back, or another was faster
	}
	return e.commitShot(ctx, sh, s)
}
