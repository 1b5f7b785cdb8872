package engine

import (
	"context"
	"slices"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// List returns one page of the caller's sandboxes that q selects, newest first; the
// operator's are those of every account. Those
// made or removed between two pages may be missed; none comes twice.
func (e *Engine) List(ctx context.Context, q sandbox.ListQuery) (sandbox.Page, error) {
	page, err := e.list(ctx, q)
	return page, fail("list", "", err)
}

func (e *Engine) list(ctx context.Context, q sandbox.ListQuery) (sandbox.Page, error) {
	page := sandbox.Page{Sandboxes: []sandbox.Sandbox{}}
	if err := q.Check(); err != nil {
		return page, err
	}
	if q.Limit == 0 {
		q.Limit = sandbox.DefaultPage
	}
	order, err := orderOf(ctx)
	if err != nil {
		return page, err
	}
	after := ""
	if q.After != "" {
		if err := parseCursor(q.After); err != nil {
			return page, err
		}
		after = order + q.After
	}
	for {
		entries, err := e.records.List(ctx, order, after, 0)
		if err != nil {
			return page, err
		}
		for _, entry := range entries {
			s, err := e.load(ctx, sandbox.ID(entry.Value))
			if sandbox.KindOf(err) == sandbox.NotFound {
				continue // removed since the index was read
			}
			if err != nil {
				return page, err
			}
			if !selects(&q, &s.Sandbox) {
				continue
			}
			if len(page.Sandboxes) == q.Limit {
				page.Next = after[len(order):]
				return page, nil
			}
			page.Sandboxes = append(page.Sandboxes, s.Sandbox)
			after = entry.Key
		}
		if len(entries) < record.MaxPage {
			return page, nil
		}
		after = entries[len(entries)-1].Key
	}
}

// orderOf is the prefix of the keys that list what there is for a caller.
func orderOf(ctx context.Context) (string, error) {
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return "", err
	}
	if c.Operator {
		return orderPrefix, nil
	}
	return ownedPrefix + c.Account + "/", nil
}

func selects(q *sandbox.ListQuery, s *sandbox.Sandbox) bool {
	if len(q.States) > 0 && !slices.Contains(q.States, s.State) {
		return false
	}
	if q.Template != "" && q.Template != s.Template || q.Name != "" && q.Name != s.Name {
		return false
	}
	for _, tag := range q.Tags {
		if !slices.Contains(s.Tags, tag) {
			return false
		}
	}
	for k, v := range q.Metadata {
		if got, ok := s.Metadata[k]; !ok || got != v {
			return false
		}
	}
	return true
}
