package engine

import (
	"context"
	"errors"

	"github.com/berth-dev/berth/sandbox"
)

// gateway holds sandboxes to their policies.
type gateway interface {
	// Check reports why a sandbox's policy cannot be enforced.
	Check(ctx context.Context, s *sandbox.Sandbox) error
	// Apply puts it into force, for what is open too. Until then nothing passes.
	Apply(ctx context.Context, s *sandbox.Sandbox) error
	// Forget ends what is open of a sandbox and lets nothing pass.
	Forget(id sandbox.ID)
}

// enforce puts a sandbox's policy into force. It comes before its machine is
// made, resumed or adopted.
func (e *Engine) enforce(ctx context.Context, s *stored) error {
	if err := e.grant(ctx, s); err != nil {
		return fail("enforce its policy", "", err)
	}
	if e.gateway == nil {
		if s.Policy != nil {
			return noGateway()
		}
		return nil
	}
	if err := e.gateway.Apply(ctx, &s.Sandbox); err != nil {
		return fail("enforce its policy", "", err)
	}
	return nil
}

// enforceAgain is enforce for a sandbox that there is already. If its policy can
// be enforced no more, it stays as it is until that is mended: no kind of error
// may pass for one about its machine.
func (e *Engine) enforceAgain(ctx context.Context, s *stored) error {
	err := e.enforce(ctx, s)
	if err == nil {
		return nil
	}
	return &sandbox.Error{Kind: sandbox.Unavailable, Err: err, Hint: "berth policy " + string(s.ID) + " set gives it another policy"}
}

func noGateway() error {
	return &sandbox.Error{Op: "enforce its policy", Kind: sandbox.Unsupported, Err: errors.New("this server has no gateway"),
		Hint: "leave the policy out"}
}

// release ends the enforcement for a sandbox that is gone.
func (e *Engine) release(id sandbox.ID) {
	if e.gateway != nil {
		e.gateway.Forget(id)
	}
}

// Policy returns what a sandbox may reach.
func (e *Engine) Policy(ctx context.Context, id string) (sandbox.Policy, error) {
	s, err := e.Get(ctx, id)
	if err != nil {
		return sandbox.Policy{}, fail("get policy", known(id), err)
	}
	if s.Policy == nil {
		return sandbox.DefaultPolicy(), nil
	}
	return *s.Policy, nil
}

// SetPolicy replaces what a sandbox may reach, in any state but failed. It is in
// force when SetPolicy returns, for open connections too. warnings name rules that
// add nothing.
//
// Forbidden: it names what the operator has closed. NotFound: it names a secret
// that is not there. Unsupported: it cannot be enforced here.
func (e *Engine) SetPolicy(ctx context.Context, id string, p sandbox.Policy) (warnings []string, err error) {
	const op = "set policy"
	done, err := e.task()
	if err != nil {
		return nil, fail(op, "", err)
	}
	defer done()
	if err := p.Check(); err != nil {
		return nil, fail(op, "", err)
	}
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return nil, fail(op, known(id), err)
	}
	unlock, err := e.sandboxes.Lock(ctx, string(sid))
	if err != nil {
		return nil, fail(op, sid, err)
	}
	defer unlock()
	s, err := e.loadMended(ctx, sid)
	if err == nil {
		err = e.setPolicy(ctx, s, p)
	}
	if err != nil {
		return nil, fail(op, sid, err)
	}
	return p.Overlaps(), nil
}

// setPolicy puts the new policy into force before it writes it down: who is told
// that it was set may rely on it. If it is not written, the old one comes back.
func (e *Engine) setPolicy(ctx context.Context, s *stored, p sandbox.Policy) error {
	if !s.living() || s.State == sandbox.Starting {
		return notRunning(s)
	}
	if err := e.checkCredentials(ctx, s.Account, &p); err != nil {
		return err
	}
	changed := *s
	err := e.changeValues(ctx, s, &changed, &p)
	if err == nil {
		err = e.enforce(ctx, &changed)
	}
	if err != nil {
		ctx, cancel := bounded(ctx, undoTime)
		defer cancel()
		return errors.Join(err, e.pruneValues(ctx, s))
	}
	if err = e.commit(ctx, s, &changed, sandbox.ChangePolicy); err == nil {
		return errors.Join(e.pruneValues(ctx, s), e.installTrust(ctx, s))
	}
	ctx, cancel := bounded(ctx, undoTime)
	defer cancel()
	now, lerr := e.load(ctx, s.ID)
	if lerr != nil { // what is on record cannot be known: nothing passes
		e.release(s.ID)
		return errors.Join(err, lerr)
	}
	return errors.Join(err, e.enforce(ctx, now), e.pruneValues(ctx, now))
}

// changeValues gives a sandbox a policy whose values are put away. Those of the
// policy before stay until the new one is on record.
func (e *Engine) changeValues(ctx context.Context, from, to *stored, p *sandbox.Policy) error {
	bare, values := p.Detach()
	to.Policy = bare
	if len(values) == 0 {
		return nil
	}
	before := ""
	if from.Policy != nil {
		before = from.Policy.ValueSet
	}
	return e.credentials.Keep(ctx, from.ID, bare.ValueSet, before, values)
}

// pruneValues removes the values of policies that a sandbox had.
func (e *Engine) pruneValues(ctx context.Context, s *stored) error {
	if e.credentials == nil {
		return nil
	}
	set := ""
	if s.Policy != nil {
		set = s.Policy.ValueSet
	}
	return e.credentials.Prune(ctx, s.ID, set)
}
