package engine

import (
	"context"

	"github.com/berth-dev/berth/sandbox"
)

// SetSecret makes a secret of the caller's account, or gives it a new value,
// which every use from then on has. The value is overwritten.
func (e *Engine) SetSecret(ctx context.Context, name string, value sandbox.SecretValue) (sandbox.Secret, error) {
	defer value.Wipe()
	var s sandbox.Secret
	err := e.withVault(ctx, "set secret", func(account string) (err error) {
		s, err = e.vault.Put(ctx, account, name, value)
		return err
	})
	return s, err
}

// Secrets lists the secrets of the caller's account: all but their values.
func (e *Engine) Secrets(ctx context.Context) (all []sandbox.Secret, err error) {
	err = e.withVault(ctx, "list secrets", func(account string) (err error) {
		all, err = e.vault.List(ctx, account)
		return err
	})
	return all, err
}

// Secret tells of one secret, or NotFound.
func (e *Engine) Secret(ctx context.Context, name string) (s sandbox.Secret, err error) {
	err = e.withVault(ctx, "get secret", func(account string) (err error) {
		s, err = e.vault.Get(ctx, account, name)
		return err
	})
	return s, err
}

// RemoveSecret forgets a secret. What needs it is refused from then on.
func (e *Engine) RemoveSecret(ctx context.Context, name string) error {
	return e.withVault(ctx, "remove secret", func(account string) error { return e.vault.Remove(ctx, account, name) })
}

// withVault calls f with the caller's account.
func (e *Engine) withVault(ctx context.Context, op string, f func(account string) error) error {
	c, err := sandbox.CallerOf(ctx)
	if err == nil && e.vault == nil {
		err = noCredentials()
	}
	if err != nil {
		return fail(op, "", err)
	}
	return f(c.Account) // the vault says what it tried
}
