package engine

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// RemoveSnapshot removes a snapshot by id or name. What it shares with others
// stays. It is Conflict while a sandbox has been taken back to it and has not run
// since.
func (e *Engine) RemoveSnapshot(ctx context.Context, id string) error {
	const op = "remove snapshot"
	done, err := e.task()
	if err != nil {
		return fail(op, "", err)
	}
	defer done()
	sh, err := e.shotOf(ctx, id)
	if err != nil {
		return fail(op, "", err)
	}
	return fail(op, "", e.removeShot(ctx, sh))
}

func (e *Engine) removeShot(ctx context.Context, sh *shot) error {
	unlock, err := e.shots.Lock(ctx, sh.key())
	if err != nil {
		return err
	}
	defer unlock()
	if err := e.notAwaited(ctx, sh); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	t := record.Txn{Then: []record.Op{{Key: sh.key(), Delete: true}}}
	if sh.Name != "" {
		t.Then = append(t.Then, record.Op{Key: shotNameKey(sh.Account, sh.Name), Delete: true})
	}
	// Under the lock nobody else removes it, and a new one has another id; its name
	// is free only once it has gone.
	if _, err := e.loadShot(ctx, sh.Account, sh.ID); err != nil {
		return err
	}
	if _, err := e.records.Commit(ctx, t); err != nil && !e.isGone(ctx, sh.key()) {
		return err
	}
	e.timers.drop(sandbox.ID(sh.key()))
	e.ledger.set(sh.key(), sh.Account, sandbox.Quota{})
	defer e.garbage.poke()
	if e.archive == nil || sh.Manifest == "" {
		return nil
	}
	return fromArchive(e.archive.Forget(sh.Manifest))
}

// isGone reports whether a key has no entry, after a commit whose outcome may be
// unknown.
func (e *Engine) isGone(ctx context.Context, key string) bool {
	_, err := e.records.Get(ctx, key)
	return sandbox.KindOf(err) == sandbox.NotFound
}

// notAwaited is Conflict if a sandbox is to wake from a snapshot.
func (e *Engine) notAwaited(ctx context.Context, sh *shot) error {
	return e.each(ctx, func(s *stored) error {
		if s.Account == sh.Account && (s.From == sh.ID || s.Doing != nil && s.Doing.Snapshot == sh.ID) {
			return &sandbox.Error{Kind: sandbox.Conflict, Err: fmt.Errorf("%s was taken back to it and has not run since", s.ID),
				Hint: fmt.Sprintf("wake it first: berth start %s; or remove it", s.ID)}
		}
		return nil
	})
}
