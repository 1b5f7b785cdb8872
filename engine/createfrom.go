package engine

import (
	"context"
	"fmt"
	"maps"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// fromSnapshot completes a request for a sandbox like a snapshot, with what the
// snapshot says.
func (e *Engine) fromSnapshot(ctx context.Context, req *sandbox.CreateRequest) (*shot, error) {
	if req.Snapshot == "" {
		return nil, nil
	}
	sh, err := e.shotOf(ctx, req.Snapshot)
	if err != nil {
		return nil, err
	}
	if req.Template != "" && req.Template != sh.Template && req.Template != sh.Image || req.Class != "" && req.Class != sh.Class {
		return nil, &sandbox.Error{Op: "check snapshot", Kind: sandbox.Invalid, Err: fmt.Errorf("it is of template %q and class %q", sh.Template, sh.Class),
			Hint: "leave template and class out: the snapshot has them"}
	}
	req.Template, req.Class = sh.Template, sh.Class
	if req.Type == "" {
		req.Limits = req.Limits.WithDefaults(sh.Limits)
	}
	env := maps.Clone(sh.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	req.Env = env
	return sh, nil
}

// descend gives a planned sandbox what it has of its snapshot, and checks that it
// can be made from that.
func (e *Engine) descend(ctx context.Context, s *stored, sh *shot) error {
	if sh == nil {
		return nil
	}
	s.Snapshot, s.Image, s.Base = sh.ID, sh.Image, sh.Base
	return e.fits(ctx, sh, s.Limits)
}

// restore makes the machine of a sandbox that is made from a snapshot.
func (e *Engine) restore(ctx context.Context, s *stored, root string) (driver.Machine, error) {
	sh, err := e.loadShot(ctx, s.Account, s.Snapshot)
	if err != nil {
		return nil, err
	}
	d, err := e.snapper(s.Class)
	if err != nil {
		return nil, err
	}
	dir, release, err := e.take(ctx, sh)
	if err != nil {
		return nil, err
	}
	defer release()
	return d.Restore(ctx, driver.Spec{ID: s.ID, Root: root, Hostname: string(s.ID), Limits: s.Limits}, dir)
}
