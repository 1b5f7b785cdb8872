package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Create makes a sandbox and returns once its guest answers. A failure at any
// step, or the end of ctx, leaves nothing. With req.Get it returns the living
// sandbox of that name, if there is one, whatever else is asked for.
//
// Conflict: the name is taken.
// Invalid: a malformed request, or a class this server does not run. NotFound:
// no such template. Exhausted: too many creates wait, or the machine is full.
func (e *Engine) Create(ctx context.Context, req sandbox.CreateRequest) (_ sandbox.Sandbox, err error) {
	const op = "create"
	if req.Get {
		s, err := e.getOrCreate(ctx, req)
		return s, fail("get or create", "", err)
	}
	t := e.timed(op)
	defer t.end(&err)
	done, err := e.task()
	if err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	defer done()
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	sh, err := e.fromSnapshot(ctx, &req)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	s, err := e.plan(c.Account, req)
	if err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	s.Build = forBuild(ctx)
	if err := e.descend(ctx, s, sh); err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	if err := e.room.need(0); err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	if err := e.admit(ctx, s); err != nil {
		return sandbox.Sandbox{}, fail(op, "", err)
	}
	planned := s.ID
	w := e.takeWarm(ctx, s)
	e.ledger.rename(planned, s.ID)
	defer e.forgetUnmade(s)
	ctx, forget := e.abortable(ctx, s.ID)
	defer forget()
	if w == nil {
		give, err := e.slots.take(ctx)
		if err != nil {
			return sandbox.Sandbox{}, fail(op, "", err)
		}
		defer give()
		t.stage("queue")
	}
	if err := e.create(ctx, s, w); err != nil {
		return sandbox.Sandbox{}, fail(op, s.ID, err)
	}
	if w == nil {
		t.stage("make")
	} else {
		t.stage("claim")
	}
	return s.Sandbox, nil
}

// plan checks a request of an account and fills in the defaults.
func (e *Engine) plan(account string, req sandbox.CreateRequest) (*stored, error) {
	if err := req.Check(); err != nil {
		return nil, err
	}
	limits, err := req.Limits.TypeLimits(req.Type, e.types)
	if err != nil {
		return nil, err
	}
	limits = limits.WithDefaults(sandbox.DefaultLimits())
	if err := limits.Check(); err != nil {
		return nil, err
	}
	if err := e.canBudget(req.Budget); err != nil {
		return nil, err
	}
	if req.Class == "" {
		req.Class = e.classes[0]
	}
	if e.drivers[req.Class] == nil {
		return nil, &sandbox.Error{Op: "check class", Kind: sandbox.Invalid, Err: fmt.Errorf("%.40q is not a class of this server", req.Class),
			Hint: fmt.Sprintf("the classes are %q", e.classes)}
	}
	if req.Template == "" {
		req.Template = sandbox.DefaultTemplate
	}
	now := e.now().UTC().Round(0)
	s := &stored{Sandbox: sandbox.Sandbox{
		ID: sandbox.NewID(), Account: account, Name: req.Name, State: sandbox.Starting, Template: req.Template, Class: req.Class,
		Type: req.Type, Limits: limits, Env: req.Env, Metadata: req.Metadata, Tags: req.Tags,
		Idle: req.Idle, Lifetime: req.Lifetime, Budget: req.Budget, Checkpoint: req.Checkpoint, Wake: req.Wake, Volumes: req.Volumes, Created: now, Updated: now,
	}}
	if req.Policy != nil { // what goes on record must not hold its values
		s.Policy, s.values = req.Policy.Detach()
	}
	return s, e.canCheckpoint(s)
}

// abortable makes a context that Remove of the sandbox and Close can end.
func (e *Engine) abortable(ctx context.Context, id sandbox.ID) (context.Context, func()) {
	ctx, abort := context.WithCancelCause(ctx)
	detach := context.AfterFunc(e.ctx, func() { abort(context.Cause(e.ctx)) })
	e.mu.Lock()
	e.creating[id] = abort
	e.mu.Unlock()
	return ctx, func() {
		e.mu.Lock()
		delete(e.creating, id)
		e.mu.Unlock()
		detach()
		abort(nil)
	}
}

// create makes what is on plan, with the machine that waited for it if w is not
// nil.
func (e *Engine) create(ctx context.Context, s *stored, w *warm) (err error) {
	var undo undo
	if w != nil {
		undo.add("end the machine that waited", func(ctx context.Context) error { return e.endWarm(ctx, w) })
	}
	unlock, err := e.sandboxes.Lock(ctx, string(s.ID))
	if err != nil {
		return undo.run(ctx, err)
	}
	defer unlock()
	defer func() {
		if err == nil {
			return
		}
		// The driver sees a context that ended; its cause says why.
		if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) {
			err = cause
		}
		err = undo.run(ctx, err)
	}()

	root, err := e.reserve(ctx, s, &undo)
	if err != nil {
		return err
	}
	if err := e.keepValues(ctx, s); err != nil {
		return err
	}
	if err := e.enforce(ctx, s); err != nil {
		return err
	}
	m, err := e.machineFor(ctx, s, root, w)
	if err != nil {
		return err
	}
	undo.add("stop the machine", func(ctx context.Context) error { return e.discard(ctx, s, m) })
	if w != nil && m == w.machine {
		u, err := m.Usage(ctx)
		if err != nil {
			return err
		}
		s.Counted = u.CPU // what it used while it waited is nobody's
	}
	if err := e.transition(ctx, s, sandbox.Running, "", record.Op{Key: machineKey(s.ID), Value: m.State()}); err != nil {
		return err
	}
	if w != nil && m == w.machine {
		e.holdWith(s.ID, m, w.guest)
	} else {
		e.hold(s.ID, m)
	}
	return nil
}

// reserve finds the template and records that a sandbox starts from it, in one
// step as far as RemoveTemplate can see. It returns the root image's path.
func (e *Engine) reserve(ctx context.Context, s *stored, undo *undo) (root string, err error) {
	unlock, err := e.names.Lock(ctx, s.Template)
	if err != nil {
		return "", err
	}
	defer unlock()
	t, err := e.templates.Get(ctx, orElse(s.Image, s.Template)) // a snapshot has its image
	if err != nil {
		return "", withHint(err, sandbox.NotFound, "berth template ls lists the templates")
	}
	if s.Snapshot == "" {
		s.Image = t.Digest
		s.setBase(base{Env: t.Env, User: t.User, Workdir: t.Workdir})
	}
	if s.Policy == nil {
		s.Policy = t.Policy
	}
	if err := e.checkCredentials(ctx, s.Account, s.Policy); err != nil {
		return "", err
	}
	release, err := e.shareVolumes(ctx, s)
	if err != nil {
		return "", err
	}
	defer release()
	err = e.transition(ctx, s, sandbox.Starting, "")
	if sandbox.KindOf(err) != sandbox.Conflict { // an unknown outcome is taken back too
		undo.add("erase the record", func(ctx context.Context) error { return e.erase(ctx, s) })
	}
	return e.templates.RootPath(t), err
}

// discard stops a machine whose create failed. One that cannot be stopped stays
// with its sandbox, as Failed, so that Remove can try again.
func (e *Engine) discard(ctx context.Context, s *stored, m driver.Machine) error {
	err := m.Stop(ctx)
	if err == nil {
		return nil
	}
	e.keep(s.ID, m)
	now, lerr := e.load(ctx, s.ID)
	if lerr != nil {
		return errors.Join(err, lerr)
	}
	return errors.Join(err, e.transition(ctx, now, sandbox.Failed, "create failed, and so did its undoing: "+err.Error()))
}

// withHint adds a hint to an error of that kind that has none.
func withHint(err error, kind sandbox.Kind, hint string) error {
	if sandbox.KindOf(err) == kind && sandbox.HintOf(err) == "" {
		return &sandbox.Error{Err: err, Hint: hint}
	}
	return err
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
