package engine

import (
	"context"
	"errors"

	"github.com/berth-dev/berth/sandbox"
)

// unstart removes what a build has kept running for a template that did not come to
// have it.
func (e *Engine) unstart(ctx context.Context, t, before sandbox.Template) error {
	if t.Snapshot == before.Snapshot {
		return nil
	}
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	now, err := e.templates.Get(ctx, t.Name)
	switch {
	case err == nil && now.Snapshot == t.Snapshot:
		return nil // it was written after all
	case err != nil && sandbox.KindOf(err) != sandbox.NotFound:
		return err
	}
	return e.dropStarted(ctx, t)
}

// sweepStarted removes what builds have kept running and no template names: the server
// ended before it was written, or before what it took the place of was removed.
func (e *Engine) sweepStarted(ctx context.Context) error {
	shots, err := e.shotsOf(ctx, "")
	if err != nil {
		return err
	}
	var started []*shot
	for _, sh := range shots {
		if sh.Build && sh.Name == "" {
			started = append(started, sh)
		}
	}
	if len(started) == 0 {
		return nil
	}
	all, err := e.templates.List(ctx)
	if err != nil {
		return err
	}
	named := map[sandbox.ID]bool{}
	for _, t := range all {
		named[t.Snapshot] = true
	}
	var errs []error
	for _, sh := range started {
		if named[sh.ID] {
			continue
		}
		err := e.removeShot(ctx, sh)
		switch sandbox.KindOf(err) {
		case "":
			e.log.Info("removed what a build that was cut short had started", "snapshot", sh.ID, "account", sh.Account)
		case sandbox.Conflict: // a sandbox waits at it
		default:
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
