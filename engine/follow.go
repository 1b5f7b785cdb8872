package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// FollowChanges streams every change that q selects, those to come too, until it
// is closed or ctx ends. Limit of q counts for nothing.
func (e *Engine) FollowChanges(ctx context.Context, q sandbox.ChangeQuery) (sandbox.ChangeStream, error) {
	const op = "follow events"
	q.Limit = sandbox.MaxPage
	to, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, fail(op, "", err)
	}
	from, err := checkChanges(&q)
	if err != nil {
		return nil, fail(op, "", err)
	}
	stable, _ := e.journal.stable()
	q.After = cursorOf(min(from, stable)) // "latest" is settled now
	ctx, cancel := context.WithCancel(ctx)
	return &follower{e: e, ctx: ctx, cancel: cancel, to: to, q: q}, nil
}

// follower reads the journal page by page.
type follower struct {
	e      *Engine
	ctx    context.Context
	cancel context.CancelFunc
	to     sandbox.Caller
	q      sandbox.ChangeQuery
	page   []sandbox.Change // read and not given yet
}

// Recv is for one goroutine at a time.
func (f *follower) Recv() (sandbox.Change, error) {
	const op = "follow events"
	for len(f.page) == 0 {
		_, grown := f.e.journal.stable()
		page, err := f.e.changes(f.ctx, f.to, f.q)
		if err != nil {
			return sandbox.Change{}, fail(op, "", err)
		}
		f.page, f.q.After = page.Events, page.Next
		if len(f.page) > 0 {
			break
		}
		select {
		case <-grown:
		case <-f.e.ctx.Done():
			return sandbox.Change{}, fail(op, "", errClosing)
		case <-f.ctx.Done():
			return sandbox.Change{}, fail(op, "", context.Cause(f.ctx))
		}
	}
	c := f.page[0]
	f.page = f.page[1:]
	return c, nil
}

// Close ends the stream and may be called at any time, twice too.
func (f *follower) Close() error {
	f.cancel()
	return nil
}
