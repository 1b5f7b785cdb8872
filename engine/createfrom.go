package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// fromSnapshot completes a request for a sandbox like a snapshot, with what the
// snapshot says.
func (e *Engine) fromSnapshot(ctx context.Context, req *sandbox.CreateRequest) (*shot, error) {
	if req.Snapshot == "" {
		return e.fromStarted(ctx, req)
	}
	sh, err := e.shotOf(ctx, req.Snapshot)
	if err != nil {
		return nil, err
	}
	if req.Template != "" && req.Template != sh.Template && req.Template != sh.Image || req.Class != "" && req.Class != sh.Class {
		return nil, &sandbox.Error{Op: "check snapshot", Kind: sandbox.Invalid, Err: fmt.Errorf("it is of template %q and class %q", sh.Template, sh.Class),
			Hint: "leave template and class out: the snapshot has them"}
	}
	if req.Volumes != nil && !slices.Equal(req.Volumes, sh.Volumes) {
		return nil, &sandbox.Error{Op: "check snapshot", Kind: sandbox.Invalid, Err: errors.New("it has volumes of its own"),
			Hint: "leave volumes out: what it shows goes on with those that it had"}
	}
	req.Template, req.Volumes = sh.Template, sh.Volumes
	sh.complete(req)
	return sh, nil
}

// fromStarted is fromSnapshot for a template whose start command goes on in every
// sandbox: nil if it has none.
func (e *Engine) fromStarted(ctx context.Context, req *sandbox.CreateRequest) (*shot, error) {
	t, err := e.templates.Get(ctx, orElse(req.Template, sandbox.DefaultTemplate))
	if err != nil {
		return nil, nil // what is wrong with the template is said later
	}
	if t.Limits != nil && req.Type == "" {
		req.Limits = req.Limits.WithDefaults(*t.Limits)
	}
	if t.Snapshot == "" {
		return nil, nil
	}
	if len(req.Volumes) > 0 {
		return nil, &sandbox.Error{Op: "check template", Kind: sandbox.Unsupported, Err: fmt.Errorf("what %q has started goes on without volumes", t.Name), Hint: "use a template that has nothing started"}
	}
	sh, err := e.loadShot(ctx, t.Account, t.Snapshot)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, &sandbox.Error{Op: "check template", Kind: sandbox.Conflict, Err: fmt.Errorf("what %q had started is gone", t.Name), Hint: "build the template anew"}
	}
	if err != nil {
		return nil, err
	}
	sh.complete(req)
	return sh, nil
}

// complete gives a request what it leaves out and the snapshot says.
func (sh *shot) complete(req *sandbox.CreateRequest) {
	req.Class = sh.Class
	if req.Type == "" {
		req.Limits = req.Limits.WithDefaults(sh.Limits)
	}
	env := maps.Clone(sh.Env)
	if env == nil {
		env = map[string]string{}
	}
	maps.Copy(env, req.Env)
	req.Env = env
}

// descend gives a planned sandbox what it has of its snapshot, and checks that it
// can be made from that.
func (e *Engine) descend(ctx context.Context, s *stored, sh *shot) error {
	if sh == nil {
		return nil
	}
	s.Snapshot, s.Image = sh.ID, sh.Image
	s.setBase(sh.Base)
	return e.fits(ctx, sh, s.Limits)
}

// restore makes the machine of a sandbox that is made from a snapshot.
func (e *Engine) restore(ctx context.Context, s *stored, root string) (driver.Machine, error) {
	sh, err := e.shotBehind(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := e.descendFrom(ctx, s); err != nil {
		return nil, err
	}
	spec, err := e.machineSpec(ctx, s, root)
	if err != nil {
		return nil, err
	}
	return e.restoreShot(ctx, sh, spec)
}

// shotBehind is the snapshot that a sandbox is made from: its account's own, or
// its template's.
func (e *Engine) shotBehind(ctx context.Context, s *stored) (*shot, error) {
	sh, err := e.loadShot(ctx, s.Account, s.Snapshot)
	if sandbox.KindOf(err) != sandbox.NotFound {
		return sh, err
	}
	if t, terr := e.templates.Get(ctx, s.Template); terr == nil && t.Snapshot == s.Snapshot {
		return e.loadShot(ctx, t.Account, t.Snapshot)
	}
	return nil, err
}

// descendFrom makes programs that go on from a snapshot trust the sandbox's own
// authority as they did that of the one it shows.
func (e *Engine) descendFrom(ctx context.Context, s *stored) error {
	if e.credentials == nil || s.Snapshot == "" {
		return nil
	}
	sh, err := e.shotBehind(ctx, s)
	if err != nil {
		return err
	}
	return e.credentials.Descend(ctx, sh.Sandbox, s.ID)
}

// restoreShot makes a machine of what a snapshot holds.
func (e *Engine) restoreShot(ctx context.Context, sh *shot, spec driver.Spec) (driver.Machine, error) {
	d, err := e.snapper(sh.Class)
	if err != nil {
		return nil, err
	}
	if early, ok := d.(driver.Early); ok && sh.Keep == sandbox.KeepMemory {
		return e.restoreEarly(ctx, early, sh, spec)
	}
	dir, release, err := e.take(ctx, sh)
	if err != nil {
		return nil, err
	}
	defer release()
	return d.Restore(ctx, spec, dir)
}
