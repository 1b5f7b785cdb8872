package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/berth-dev/berth/sandbox"
)

// auditLog keeps what sandboxes did towards the outside.
type auditLog interface {
	Query(ctx context.Context, q sandbox.AuditQuery) (sandbox.AuditPage, error)
	// Grown returns a channel that is closed when there is more to read.
	Grown() <-chan struct{}
}

// Audit returns one page of what sandboxes did and tried towards the outside,
// oldest first. Of a sandbox that is gone it is found by its id.
func (e *Engine) Audit(ctx context.Context, q sandbox.AuditQuery) (sandbox.AuditPage, error) {
	const op = "read audit"
	if err := e.checkAudit(ctx, &q); err != nil {
		return sandbox.AuditPage{}, fail(op, "", err)
	}
	page, err := e.audit.Query(ctx, q)
	return page, fail(op, "", err)
}

// checkAudit narrows a query to what its caller may see.
func (e *Engine) checkAudit(ctx context.Context, q *sandbox.AuditQuery) error {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return err
	}
	if e.audit == nil {
		return &sandbox.Error{Kind: sandbox.Unsupported, Err: errors.New("this server keeps no audit")}
	}
	if err := q.Check(); err != nil {
		return err
	}
	if !c.Operator {
		if q.Account != "" && q.Account != c.Account {
			return &sandbox.Error{Kind: sandbox.Forbidden, Err: errors.New("it is another account's"), Hint: "leave the account out"}
		}
		q.Account = c.Account
	}
	if q.Sandbox == "" {
		return nil
	}
	if _, err := sandbox.ParseID(q.Sandbox); err == nil {
		return nil
	}
	id, err := e.resolve(ctx, q.Sandbox)
	q.Sandbox = string(id)
	return err
}

// FollowAudit streams every entry that q selects, those to come too, until it is
// closed or ctx ends. Limit of q counts for nothing.
func (e *Engine) FollowAudit(ctx context.Context, q sandbox.AuditQuery) (sandbox.AuditStream, error) {
	q.Limit = sandbox.MaxPage
	if err := e.checkAudit(ctx, &q); err != nil {
		return nil, fail("follow audit", "", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	return &auditFollower{e: e, ctx: ctx, cancel: cancel, q: q}, nil
}

// auditFollower reads the audit page by page.
type auditFollower struct {
	e      *Engine
	ctx    context.Context
	cancel context.CancelFunc
	q      sandbox.AuditQuery
	page   []sandbox.AuditEntry // read and not given yet
	once   sync.Once
}

// Recv is for one goroutine at a time.
func (f *auditFollower) Recv() (sandbox.AuditEntry, error) {
	const op = "follow audit"
	for len(f.page) == 0 {
		grown := f.e.audit.Grown()
		page, err := f.e.audit.Query(f.ctx, f.q)
		if err != nil {
			return sandbox.AuditEntry{}, fail(op, "", err)
		}
		f.page, f.q.After = page.Entries, page.Next
		if len(f.page) > 0 {
			break
		}
		select {
		case <-grown:
		case <-f.e.ctx.Done():
			return sandbox.AuditEntry{}, fail(op, "", errClosing)
		case <-f.ctx.Done():
			return sandbox.AuditEntry{}, fail(op, "", context.Cause(f.ctx))
		}
	}
	entry := f.page[0]
	f.page = f.page[1:]
	return entry, nil
}

// Close ends the stream and may be called at any time, twice too.
func (f *auditFollower) Close() error {
	f.once.Do(f.cancel)
	return nil
}
