package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/berth-dev/berth/sandbox"
)

// credentials lets sandboxes use secrets that they never hold. What it keeps of a
// sandbox it keeps by itself, under the sandbox's id.
type credentials interface {
	// Check reports what of a policy cannot be done: NotFound for a secret that
	// the account does not have.
	Check(ctx context.Context, account string, p *sandbox.Policy) error

	// Grant gives a sandbox its right to secrets. What it has, or what was
	// revoked, stays as it is.
	Grant(ctx context.Context, id sandbox.ID, secrets ...string) error
	Grants(ctx context.Context, id sandbox.ID) ([]sandbox.Grant, error)
	Revoke(ctx context.Context, id sandbox.ID, secret string) error
	Restore(ctx context.Context, id sandbox.ID, secret string) error

	// Keep puts the values of a sandbox's policy away, in a set of that name. What
	// has no text is taken from the set before: Invalid if that has none.
	Keep(ctx context.Context, id sandbox.ID, set, before string, values []sandbox.RuleValue) error
	// Prune removes all its sets but for the one that its policy has.
	Prune(ctx context.Context, id sandbox.ID, set string) error

	// Inherit gives a copy of a sandbox what it needs of the same kind.
	Inherit(ctx context.Context, parent, child sandbox.ID) error
	// Descend gives a sandbox that is made from an earlier state of another what
	// the programs of that state trust, and no grant.
	Descend(ctx context.Context, from, to sandbox.ID) error
	// Forget removes what is kept of a sandbox that is no more.
	Forget(ctx context.Context, id sandbox.ID) error

	// Certificate is what a sandbox must trust for what is looked into, as PEM.
	Certificate(ctx context.Context, id sandbox.ID) ([]byte, error)
}

// vault keeps an account's secrets, whose values do not come back.
type vault interface {
	Put(ctx context.Context, account, name string, value sandbox.SecretValue) (sandbox.Secret, error)
	Get(ctx context.Context, account, name string) (sandbox.Secret, error)
	List(ctx context.Context, account string) ([]sandbox.Secret, error)
	Remove(ctx context.Context, account, name string) error
}

// checkCredentials refuses a policy that needs what is not there.
func (e *Engine) checkCredentials(ctx context.Context, account string, p *sandbox.Policy) error {
	if p == nil || len(p.Inject) == 0 {
		return nil
	}
	if e.credentials == nil {
		return noCredentials()
	}
	return e.credentials.Check(ctx, account, p)
}

// grant gives a sandbox what its policy's rules need.
func (e *Engine) grant(ctx context.Context, s *stored) error {
	if s.Policy == nil || len(s.Policy.Inject) == 0 {
		return nil
	}
	if e.credentials == nil {
		return noCredentials()
	}
	var names []string
	for i := range s.Policy.Inject {
		names = append(names, s.Policy.Inject[i].Secrets()...)
	}
	return e.credentials.Grant(ctx, s.ID, names...)
}

// keepValues puts away what the policy of a sandbox that is being made says of
// headers. Its record is there: what undoes that removes this too.
func (e *Engine) keepValues(ctx context.Context, s *stored) error {
	if len(s.values) == 0 {
		return nil
	}
	if e.credentials == nil {
		return noCredentials()
	}
	if err := e.credentials.Keep(ctx, s.ID, s.Policy.ValueSet, "", s.values); err != nil {
		return err
	}
	s.values = nil
	return nil
}

// endow gives a copy of a sandbox grants and an authority of its own, and puts
// its policy into force. It comes before its machine is made.
func (e *Engine) endow(ctx context.Context, parent sandbox.ID, child *stored) error {
	if err := e.inherit(ctx, parent, child.ID); err != nil {
		return err
	}
	return e.enforce(ctx, child)
}

// inherit gives a copy of a sandbox grants and an authority of its own.
func (e *Engine) inherit(ctx context.Context, parent, child sandbox.ID) error {
	if e.credentials == nil {
		return nil
	}
	return e.credentials.Inherit(ctx, parent, child)
}

// disown removes what is kept for a sandbox that is no more.
func (e *Engine) disown(ctx context.Context, id sandbox.ID) error {
	if e.credentials == nil {
		return nil
	}
	return e.credentials.Forget(ctx, id)
}

func noCredentials() error {
	return &sandbox.Error{Op: "find secrets", Kind: sandbox.Unsupported, Err: errors.New("this server keeps no secrets"), Hint: "leave inject out of the policy"}
}

// Grants lists which secrets a sandbox may have used for it, those of its policy
// and those from before.
func (e *Engine) Grants(ctx context.Context, id string) ([]sandbox.Grant, error) {
	const op = "list grants"
	s, err := e.Get(ctx, id)
	if err != nil || e.credentials == nil {
		return nil, fail(op, known(id), err)
	}
	return e.credentials.Grants(ctx, s.ID)
}

// RevokeGrant takes a secret away from one sandbox, at once: requests under way
// that it was added to are cut. Its parent, its forks and others keep theirs.
func (e *Engine) RevokeGrant(ctx context.Context, id, secret string) error {
	return e.changeGrant(ctx, "revoke grant", id, secret, credentials.Revoke)
}

// RestoreGrant gives back what RevokeGrant took.
func (e *Engine) RestoreGrant(ctx context.Context, id, secret string) error {
	return e.changeGrant(ctx, "restore grant", id, secret, credentials.Restore)
}

func (e *Engine) changeGrant(ctx context.Context, op, id, secret string, change func(credentials, context.Context, sandbox.ID, string) error) error {
	s, err := e.Get(ctx, id)
	if err != nil {
		return fail(op, known(id), err)
	}
	if e.credentials == nil {
		return fail(op, s.ID, noCredentials())
	}
	return change(e.credentials, ctx, s.ID, secret)
}

// inspected reports whether anything that a sandbox sends over TLS is looked
// into: then it must trust its own authority.
func (s *stored) inspected() bool {
	p := s.Policy
	return p != nil && (len(p.Inject) > 0 || p.DivertTLS || slices.ContainsFunc(p.Allow, inspects) || slices.ContainsFunc(p.Deny, inspects))
}

func inspects(r sandbox.Rule) bool { return r.Inspects() }
