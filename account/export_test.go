package account

import (
	"context"
	"net/netip"

	"github.com/berth-dev/berth/sandbox"
)

// Sweep has it looked for accounts whose time has come, and waits for a whole look
// that begins from now on.
func (b *Book) Sweep(ctx context.Context) error {
	for range 2 {
		looked := b.swept.wait()
		b.sweepSoon()
		select {
		case <-looked:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// RemoveUnclaimed does what a sweep does with a temporary account whose time has
// come, although it has not: it may be claimed at the same moment.
func (b *Book) RemoveUnclaimed(ctx context.Context, id string) error {
	s, err := b.load(ctx, id)
	if err != nil {
		return err
	}
	if s.State == "active" {
		return nil // it was claimed already
	}
	if err := b.beginEnd(ctx, s); err != nil {
		return ignoreConflict(err)
	}
	return b.finishEnd(ctx, s)
}

func ignoreConflict(err error) error {
	if sandbox.KindOf(err) == sandbox.Conflict {
		return nil
	}
	return err
}

// Spend takes a solution.
func (b *Book) Spend(r sandbox.TemporaryRequest, from netip.Addr, need int) error {
	return b.work.spend(r, from, need)
}
