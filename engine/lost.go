package engine

import (
	"context"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// bootKey holds the boot id of the host at the last Open.
const bootKey = "host/boot"

// lose settles a sandbox of whose machine nothing is left.
//
// It is the one place that decides what becomes of a sandbox that ran when its
// host went down. Its memory and the tree of its writable layer were in the
// machine, so it goes on from its last checkpoint; without one the honest answer
// is Failed, with the reason.
func (e *Engine) lose(ctx context.Context, s *stored) error {
	reason := "its machine was gone when the server started"
	switch {
	case e.rebooted:
		reason = "the host was restarted while it ran"
	case s.State == sandbox.Paused || s.State == sandbox.Stopped:
		reason = "what was kept of it is gone"
	}
	if back, err := e.fallBack(ctx, s, reason); back || err != nil {
		return err
	}
	if err := e.transition(ctx, s, sandbox.Failed, reason, goneOps(s.ID)...); err != nil {
		return err
	}
	return e.drop(s.ID)
}

// noteBoot finds out whether the host was restarted since the last Open.
func (e *Engine) noteBoot(ctx context.Context) error {
	if e.boot == "" {
		return nil
	}
	before, err := e.records.Get(ctx, bootKey)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	e.rebooted = err == nil && string(before.Value) != e.boot
	return err
}

// keepBoot is the end of Open: what the restart cost has been settled.
func (e *Engine) keepBoot(ctx context.Context) error {
	if e.boot == "" {
		return nil
	}
	_, err := e.records.Commit(ctx, record.Txn{Then: []record.Op{{Key: bootKey, Value: []byte(e.boot)}}})
	return err
}
