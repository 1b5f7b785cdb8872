package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/sandbox"
)

// BuildTemplate makes a template, or replaces the one of that name, and calls
// progress, if it is not nil, for each step. Sandboxes that run keep the root
// that they started from.
func (e *Engine) BuildTemplate(ctx context.Context, req sandbox.BuildRequest, progress func(sandbox.Progress)) (sandbox.Template, error) {
	const op = "build template"
	if err := operatorOnly(ctx); err != nil {
		return sandbox.Template{}, fail(op, "", err)
	}
	if err := req.Check(); err != nil {
		return sandbox.Template{}, fail(op, "", err)
	}
	done, err := e.task()
	if err != nil {
		return sandbox.Template{}, fail(op, "", err)
	}
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(e.ctx, func() { cancel(context.Cause(e.ctx)) })()
	if err := e.room.need(0); err != nil {
		return sandbox.Template{}, fail(op, "", err)
	}
	e.builds.RLock()
	defer e.builds.RUnlock()
	if progress == nil {
		progress = func(sandbox.Progress) {}
	}
	build := e.templates.Build
	if req.Staged() {
		build = e.construct
	}
	t, err := build(ctx, req, progress)
	for _, name := range req.Also {
		if err == nil {
			err = e.CopyTemplate(ctx, t.Name, name)
		}
	}
	return t, fail(op, "", err)
}

// Templates lists the templates by name.
func (e *Engine) Templates(ctx context.Context) ([]sandbox.Template, error) {
	const op = "list templates"
	if _, err := sandbox.CallerOf(ctx); err != nil {
		return nil, fail(op, "", err)
	}
	all, err := e.templates.List(ctx)
	return all, fail(op, "", err)
}

// Template returns one template, or NotFound.
func (e *Engine) Template(ctx context.Context, name string) (sandbox.Template, error) {
	t, err := e.template(ctx, name)
	return t, fail("get template", "", err)
}

func (e *Engine) template(ctx context.Context, name string) (sandbox.Template, error) {
	if _, err := sandbox.CallerOf(ctx); err != nil {
		return sandbox.Template{}, err
	}
	req := sandbox.CreateRequest{Template: name}
	if err := req.Check(); err != nil {
		return sandbox.Template{}, err
	}
	t, err := e.templates.Get(ctx, name)
	return t, withHint(err, sandbox.NotFound, "berth template ls lists the templates")
}

// RemoveTemplate removes a template. It is Conflict while a sandbox uses it.
func (e *Engine) RemoveTemplate(ctx context.Context, name string) error {
	return fail("remove template", "", e.removeTemplate(ctx, name))
}

func (e *Engine) removeTemplate(ctx context.Context, name string) error {
	if err := operatorOnly(ctx); err != nil {
		return err
	}
	if err := sandbox.CheckName(name); err != nil {
		return err
	}
	unlock, err := e.names.Lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	t, err := e.template(ctx, name)
	if err != nil {
		return err
	}
	users, err := e.usersOf(ctx, t)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		text := fmt.Sprintf("%d sandboxes or snapshots use it: %s", len(users), strings.Join(users[:min(3, len(users))], ", "))
		return &sandbox.Error{Kind: sandbox.Conflict, Err: errors.New(text), Hint: "remove them first; berth ls lists them"}
	}
	if err := e.templates.Remove(ctx, name); err != nil {
		return err
	}
	return e.dropStarted(ctx, t)
}

// operatorOnly is Forbidden for everybody else: templates are the server's, shared
// by all accounts, and may be built from files of its machine.
func operatorOnly(ctx context.Context) error {
	c, err := sandbox.CallerOf(ctx)
	if err == nil && !c.Operator {
		err = &sandbox.Error{Kind: sandbox.Forbidden, Err: errors.New("this is for the server's operator"), Hint: "ask whoever runs this server"}
	}
	return err
}

// usersOf returns the ids of the sandboxes that need a template: all of its name,
// and all on its root unless that has another name too.
func (e *Engine) usersOf(ctx context.Context, t sandbox.Template) (ids []string, err error) {
	all, err := e.templates.List(ctx)
	if err != nil {
		return nil, err
	}
	shared := slices.ContainsFunc(all, func(o sandbox.Template) bool { return o.Name != t.Name && o.Digest == t.Digest })
	err = e.each(ctx, func(s *stored) error {
		if s.State != sandbox.Failed && (s.Template == t.Name || s.Image == t.Digest && !shared) {
			ids = append(ids, string(s.ID))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	shots, err := e.shotsOf(ctx, "")
	for _, sh := range shots {
		// What the template itself has kept goes with it, and what a build has kept of
		// its steps is made again.
		if sh.Image == t.Digest && !shared && sh.ID != t.Snapshot && !strings.HasPrefix(sh.Name, stepPrefix) {
			ids = append(ids, "snapshot "+string(sh.ID))
		}
	}
	return ids, err
}

// CopyTemplate gives a template another name. What is built under the old one
// later leaves it alone. What it has started goes on under both.
func (e *Engine) CopyTemplate(ctx context.Context, from, to string) error {
	const op = "copy template"
	if err := operatorOnly(ctx); err != nil {
		return fail(op, "", err)
	}
	if err := sandbox.CheckName(to); err != nil {
		return fail(op, "", err)
	}
	replaced, err := e.copyTemplate(ctx, from, to)
	if err == nil {
		err = e.dropStarted(ctx, replaced)
	}
	return fail(op, "", err)
}

// copyTemplate returns what had the name before.
func (e *Engine) copyTemplate(ctx context.Context, from, to string) (replaced sandbox.Template, err error) {
	e.naming.Lock()
	defer e.naming.Unlock()
	t, err := e.template(ctx, from)
	if err != nil || from == to {
		return replaced, err
	}
	replaced, err = e.templates.Get(ctx, to)
	if kind := sandbox.KindOf(err); err != nil && kind != sandbox.NotFound && kind != sandbox.Internal {
		return replaced, err
	}
	t.Name = to
	return replaced, e.templates.Assign(ctx, t)
}

// hasStarted reports whether any template goes on from a snapshot. One that has been
// found is on record by then: copies are made meanwhile of none.
func (e *Engine) hasStarted(ctx context.Context, snapshot sandbox.ID) (bool, error) {
	e.naming.Lock()
	defer e.naming.Unlock()
	all, err := e.templates.List(ctx)
	return slices.ContainsFunc(all, func(t sandbox.Template) bool { return t.Snapshot == snapshot }), err
}
