package engine

import (
	"context"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// KeepAlive says that a running sandbox is wanted: it is not idle now, nor for
// that many more seconds. What was promised before is never taken back. It wakes
// nothing: on a sandbox that does not run it is Conflict.
func (e *Engine) KeepAlive(ctx context.Context, id string, seconds int64) (sandbox.Sandbox, error) {
	const op = "keep alive"
	if seconds < 0 || seconds > sandbox.MaxTimer {
		return sandbox.Sandbox{}, sandbox.Errorf(op, sandbox.Invalid, "it is asked for %d seconds, 0 to %d are taken", seconds, int64(sandbox.MaxTimer))
	}
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, known(id), err)
	}
	s, err := e.keepAlive(ctx, sid, time.Duration(seconds)*time.Second)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, sid, err)
	}
	return s.Sandbox, nil
}

func (e *Engine) keepAlive(ctx context.Context, id sandbox.ID, more time.Duration) (*stored, error) {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return nil, err
	}
	defer unlock()
	s, err := e.loadMended(ctx, id)
	if err != nil {
		return nil, err
	}
	if s.State != sandbox.Running {
		return nil, notRunning(s)
	}
	if l := e.held(id); l != nil {
		l.touch(e.now())
	}
	until := e.now().UTC().Round(0).Add(more)
	if more == 0 || !until.After(s.KeepUntil) {
		return s, nil
	}
	changed := *s
	changed.KeepUntil = until
	return s, e.commit(ctx, s, &changed, "")
}
