package engine

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/berth-dev/berth/driver"
)

// copierFrom is what makes machines like a sandbox that is put aside at a
// snapshot. The caller holds its lock.
func (e *Engine) copierFrom(ctx context.Context, s *stored) (func(context.Context, []driver.Spec) (driver.Forks, error), error) {
	sh, err := e.loadShot(ctx, s.Account, s.From)
	if err != nil {
		return nil, err
	}
	if err := e.fits(ctx, sh, s.Limits); err != nil {
		return nil, err
	}
	d, err := e.snapper(s.Class)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, specs []driver.Spec) (driver.Forks, error) {
		dir, release, err := e.take(ctx, sh)
		if err != nil {
			return driver.Forks{}, err
		}
		defer release()
		f := driver.Forks{Each: make([]driver.Forked, len(specs))}
		var g errgroup.Group
		g.SetLimit(forkCommits)
		for i, spec := range specs {
			g.Go(func() error {
				f.Each[i].Machine, f.Each[i].Err = d.Restore(ctx, spec, dir)
				return nil
			})
		}
		return f, g.Wait()
	}, nil
}
