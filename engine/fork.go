package engine

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Fork makes sandboxes like one that is there, as it is at this moment: memory,
// processes, terminals and files. It runs on with everything attached to it; a
// paused or stopped one is copied as it lies, without waking. Each child that
// cannot be made leaves nothing and says why; if none can, so does Fork.
//
// NotFound: no such sandbox. Conflict: it failed, or is starting. Invalid: a
// malformed request. Exhausted: more children than this server or the account
// may make at once, or no room. Unsupported: its class cannot be copied.
func (e *Engine) Fork(ctx context.Context, id string, req sandbox.ForkRequest) (_ sandbox.Fork, err error) {
	const op = "fork"
	t := e.timed(op)
	defer t.end(&err)
	done, err := e.task()
	if err != nil {
		return sandbox.Fork{}, fail(op, "", err)
	}
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })()
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return sandbox.Fork{}, fail(op, "", err)
	}
	f, err := e.fork(ctx, sid, req)
	return f, fail(op, sid, err)
}

func (e *Engine) fork(ctx context.Context, id sandbox.ID, req sandbox.ForkRequest) (sandbox.Fork, error) {
	var f sandbox.Fork
	if err := req.Check(); err != nil {
		return f, err
	}
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return f, err
	}
	defer unlock()
	s, err := e.loadMended(ctx, id)
	if err != nil {
		return f, err
	}
	if err := e.mayFork(ctx, s.Account, req.Count); err != nil {
		return f, err
	}
	if err := e.roomToCopy(ctx, s); err != nil {
		return f, err
	}
	copies, err := e.copier(ctx, s)
	if err != nil {
		return f, err
	}
	give, err := e.slots.take(ctx)
	if err != nil {
		return f, err
	}
	defer give()
	b, err := e.conceive(s, req)
	if err != nil {
		return f, err
	}
	got := b.bear(ctx, copies)
	f.Pause = got.Pause
	for _, st := range got.Stages {
		f.Stages = append(f.Stages, sandbox.ForkStage(st))
	}
	f.Children, err = b.outcome()
	return f, err
}

// mayFork checks how many children an account may make at once.
func (e *Engine) mayFork(ctx context.Context, account string, count int) error {
	quota, err := e.quotaOf(ctx, account)
	if err != nil {
		return err
	}
	most := e.forks
	if q := int(quota.ForkAtOnce); q > 0 {
		most = min(most, q)
	}
	if count > most {
		return &sandbox.Error{Op: "check fork", Kind: sandbox.Exhausted, Err: fmt.Errorf("%d children at once, %d are allowed", count, most),
			Hint: "make fewer at once, or ask the operator for more"}
	}
	return nil
}

// copier is what makes machines like a sandbox's. The caller holds its lock.
func (e *Engine) copier(ctx context.Context, s *stored) (func(context.Context, []driver.Spec) (driver.Forks, error), error) {
	d, err := e.driver(s.Class)
	if err != nil {
		return nil, err
	}
	f, ok := d.(driver.Forker)
	if !ok {
		return nil, &sandbox.Error{Op: "find driver", Kind: sandbox.Unsupported,
			Err: fmt.Errorf("sandboxes of class %q cannot be copied", s.Class), Hint: "create another, or use the class gvisor"}
	}
	switch s.State {
	case sandbox.Running:
		l := e.held(s.ID)
		if l == nil {
			if l, err = e.adopt(ctx, s); err != nil {
				return nil, err
			}
		}
		l.touch(e.now())
		return func(ctx context.Context, specs []driver.Spec) (driver.Forks, error) {
			return f.Fork(ctx, l.machine, specs)
		}, nil
	case sandbox.Paused, sandbox.Stopped:
		if s.From != "" {
			return e.copierFrom(ctx, s)
		}
		saved, err := e.records.Get(ctx, savedKey(s.ID))
		if err != nil {
			return nil, fail("find what was kept", "", err)
		}
		return func(ctx context.Context, specs []driver.Spec) (driver.Forks, error) {
			return f.ForkSaved(ctx, s.ID, saved.Value, specs)
		}, nil
	}
	return nil, notRunning(s)
}
