package engine

import (
	"context"
	"fmt"
)

// undo is a stack of steps that take back what a verb has done so far.
type undo []step

type step struct {
	what string
	do   func(context.Context) error
}

func (u *undo) add(what string, do func(context.Context) error) {
	*u = append(*u, step{what, do})
}

// run takes everything back, the last step first, although ctx may have ended.
// A step that fails keeps those beneath it from being tried: they assume that it
// is gone. The result is why, with what could not be undone.
func (u *undo) run(ctx context.Context, why error) error {
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	for i := len(*u) - 1; i >= 0; i-- {
		s := (*u)[i]
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%w (and its undoing: %s: %w)", why, s.what, err)
		}
	}
	return why
}
