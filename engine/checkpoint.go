package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// checkpointAt is when a sandbox's next checkpoint is due; zero: never.
func (s *stored) checkpointAt() time.Time {
	every := time.Duration(s.Checkpoint.Every()) * time.Second
	if every == 0 || s.State != sandbox.Running {
		return time.Time{}
	}
	from := s.Started
	if s.SafeAt.After(from) {
		from = s.SafeAt
	}
	return from.Add(every)
}

// lookAtCheckpoint takes a checkpoint if one is due, and says when the next is. One
// that fails is tried again in its time: it is no reason to disturb who works.
func (e *Engine) lookAtCheckpoint(ctx context.Context, s *stored) time.Time {
	due := s.checkpointAt()
	if due.IsZero() || e.now().Before(due) {
		return due
	}
	if _, busy := e.checking.LoadOrStore(s.ID, true); busy {
		return time.Time{} // it says itself when the next is due
	}
	defer e.checking.Delete(s.ID)
	err := e.checkpoint(ctx, s)
	if err != nil && ctx.Err() == nil && sandbox.KindOf(err) != sandbox.NotFound {
		e.log.Error("take a checkpoint", "sandbox", s.ID, "error", err)
		e.note(ctx, s.ID, fmt.Sprintf("its checkpoint could not be taken: %v", err))
	}
	return e.now().Add(time.Duration(s.Checkpoint.Every()) * time.Second)
}

// checkpoint keeps a sandbox as it is, and then lets go of its checkpoint before.
func (e *Engine) checkpoint(ctx context.Context, s *stored) error {
	sh, err := e.snapshot(ctx, s.ID, sandbox.SnapshotRequest{Keep: orKeep(s.Checkpoint.Keep), Auto: true})
	if err != nil {
		return err
	}
	old, err := e.markSafe(ctx, s.ID, sh)
	if err != nil {
		return errors.Join(err, e.removeShot(ctx, sh))
	}
	return e.removeChecked(ctx, s.Account, old)
}

func orKeep(k sandbox.Keep) sandbox.Keep {
	if k == "" {
		return sandbox.KeepMemory
	}
	return k
}

// markSafe puts a sandbox's newest checkpoint on record and returns the one before.
func (e *Engine) markSafe(ctx context.Context, id sandbox.ID, sh *shot) (old sandbox.ID, err error) {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return "", err
	}
	defer unlock()
	s, err := e.loadMended(ctx, id)
	if err != nil {
		return "", err
	}
	changed := *s
	changed.Safe, changed.SafeAt = sh.ID, sh.Taken
	old = s.Safe
	return old, e.commit(ctx, s, &changed, "")
}

// removeChecked removes a checkpoint, unless it is gone or somebody goes on from it.
func (e *Engine) removeChecked(ctx context.Context, account string, id sandbox.ID) error {
	if id == "" {
		return nil
	}
	sh, err := e.loadShot(ctx, account, id)
	if err == nil && sh.Auto {
		err = e.removeShot(ctx, sh)
	}
	if k := sandbox.KindOf(err); k == sandbox.NotFound || k == sandbox.Conflict {
		return nil // the next start sees to it
	}
	return err
}

// fallBack puts a sandbox whose machine is lost on record as put aside at its last
// checkpoint; false: it has none.
func (e *Engine) fallBack(ctx context.Context, s *stored, why string) (bool, error) {
	if s.Safe == "" {
		return false, nil
	}
	sh, err := e.loadShot(ctx, s.Account, s.Safe)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	next := *s
	next.From, next.Snapshot = sh.ID, sh.ID
	next.setBase(sh.Base)
	age := e.now().Sub(sh.Taken).Round(time.Second)
	reason := fmt.Sprintf("%s; its checkpoint, %v old, is what there is", why, age)
	if err := e.transition(ctx, &next, asideAs(sh), reason, goneOps(s.ID)...); err != nil {
		return false, err
	}
	*s = next
	return true, e.drop(s.ID)
}

// goOn wakes those that ran when their host went down, one after the other, from
// their checkpoints.
func (e *Engine) goOn(fallen []sandbox.ID) {
	for _, id := range fallen {
		if err := e.wakeOne(e.ctx, id, true); err != nil && e.ctx.Err() == nil {
			e.log.Error("go on from a checkpoint", "sandbox", id, "error", err)
			e.note(e.ctx, id, fmt.Sprintf("it did not wake from its checkpoint: %v", err))
		}
		if e.ctx.Err() != nil {
			return
		}
	}
}

// sweepCheckpoints removes those that no sandbox goes on from: what a process
// before was about to remove.
func (e *Engine) sweepCheckpoints(ctx context.Context) error {
	shots, err := e.shotsOf(ctx, "")
	if err != nil {
		return err
	}
	for _, sh := range shots {
		if !sh.Auto {
			continue
		}
		s, err := e.load(ctx, sh.Sandbox)
		if err == nil && s.Safe == sh.ID {
			continue
		}
		if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
		if err := e.removeChecked(ctx, sh.Account, sh.ID); err != nil {
			return err
		}
	}
	return nil
}

// canCheckpoint refuses a policy that cannot be kept.
func (e *Engine) canCheckpoint(s *stored) error {
	if s.Checkpoint.Every() == 0 {
		return nil
	}
	if _, err := e.archived(); err != nil {
		return err
	}
	_, err := e.snapper(s.Class)
	return err
}
