// Package secret keeps named values that leave it for the gateway alone.
//
// A value is sealed before it is put on record and opened for the moment of its
// use; no verb returns it, and no error or log holds it.
package secret

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// What is known of a secret and its value are two entries, written in one
// transaction: a list reads no values.
const (
	knownPrefix = "secret/" // + account/name: a sandbox.Secret as JSON
	valuePrefix = "sealed/" // + account/name: the value, sealed under this very key
)

// tries bounds how often a change is tried that others get in the way of.
const tries = 16

// Vault keeps the secrets of all accounts. All methods may be called at once from
// many goroutines.
type Vault struct {
	records record.Store
	sealer  *Sealer
	now     func() time.Time
}

// NewVault returns a Vault over records. clock nil means time.Now.
func NewVault(records record.Store, sealer *Sealer, clock func() time.Time) *Vault {
	if clock == nil {
		clock = time.Now
	}
	return &Vault{records: records, sealer: sealer, now: clock}
}

// Put makes a secret, or gives the one of that name a new value: from then on
// every use has the new one. The value is not kept.
//
// Invalid: the name or the size of the value. Exhausted: the account has
// sandbox.MaxSecrets already.
func (v *Vault) Put(ctx context.Context, account, name string, value sandbox.SecretValue) (sandbox.Secret, error) {
	const op = "set secret"
	if err := errors.Join(check(account, name), sandbox.CheckSecretValue(value)); err != nil {
		return sandbox.Secret{}, &sandbox.Error{Op: op, Err: err}
	}
	for try := 1; ; try++ {
		s, err := v.put(ctx, account, name, value)
		if sandbox.KindOf(err) == sandbox.Conflict && try < tries {
			continue // another put was faster: this one comes after it
		}
		if err != nil {
			return sandbox.Secret{}, &sandbox.Error{Op: op, Err: err}
		}
		return s, nil
	}
}

func (v *Vault) put(ctx context.Context, account, name string, value sandbox.SecretValue) (sandbox.Secret, error) {
	now := v.now().UTC().Round(0)
	s, revision, err := v.load(ctx, account, name)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		if err := v.admit(ctx, account); err != nil {
			return s, err
		}
		s = sandbox.Secret{Name: name, Created: now}
	case err != nil:
		return s, err
	}
	s.Version++
	s.Updated = now
	known, err := json.Marshal(s)
	if err != nil {
		return s, sandbox.Errorf("encode secret", sandbox.Internal, "%w", err)
	}
	sealed, err := v.sealer.Seal(valueKey(account, name), value)
	if err != nil {
		return s, err
	}
	_, err = v.records.Commit(ctx, record.Txn{
		If:   []record.Cond{{Key: knownKey(account, name), Revision: revision}},
		Then: []record.Op{{Key: knownKey(account, name), Value: known}, {Key: valueKey(account, name), Value: sealed}},
	})
	return s, err
}

// admit refuses one more secret to an account that is full.
func (v *Vault) admit(ctx context.Context, account string) error {
	all, err := v.records.List(ctx, knownKey(account, ""), "", sandbox.MaxSecrets)
	if err != nil {
		return err
	}
	if len(all) >= sandbox.MaxSecrets {
		return &sandbox.Error{Kind: sandbox.Exhausted, Err: fmt.Errorf("the account has %d secrets already", len(all)), Hint: "remove one first"}
	}
	return nil
}

// Get tells what may be known of a secret, or NotFound.
func (v *Vault) Get(ctx context.Context, account, name string) (sandbox.Secret, error) {
	const op = "get secret"
	if err := check(account, name); err != nil {
		return sandbox.Secret{}, &sandbox.Error{Op: op, Err: err}
	}
	s, _, err := v.load(ctx, account, name)
	if err != nil {
		return s, &sandbox.Error{Op: op, Err: err}
	}
	return s, nil
}

// List tells of all secrets of an account, by name.
func (v *Vault) List(ctx context.Context, account string) ([]sandbox.Secret, error) {
	const op = "list secrets"
	if err := sandbox.CheckAccount(account); err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	entries, err := v.records.List(ctx, knownKey(account, ""), "", sandbox.MaxSecrets)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	all := make([]sandbox.Secret, len(entries))
	for i, e := range entries {
		if err := json.Unmarshal(e.Value, &all[i]); err != nil {
			return nil, sandbox.Errorf(op, sandbox.Internal, "decode %s: %w", e.Key, err)
		}
	}
	return all, nil
}

// Remove forgets a secret and its value. One that is not there is NotFound.
func (v *Vault) Remove(ctx context.Context, account, name string) error {
	const op = "remove secret"
	if err := check(account, name); err != nil {
		return &sandbox.Error{Op: op, Err: err}
	}
	for try := 1; ; try++ {
		_, revision, err := v.load(ctx, account, name)
		if err == nil {
			_, err = v.records.Commit(ctx, record.Txn{
				If:   []record.Cond{{Key: knownKey(account, name), Revision: revision}},
				Then: []record.Op{{Key: knownKey(account, name), Delete: true}, {Key: valueKey(account, name), Delete: true}},
			})
		}
		if sandbox.KindOf(err) == sandbox.Conflict && try < tries {
			continue
		}
		if err != nil {
			return &sandbox.Error{Op: op, Err: err}
		}
		return nil
	}
}

// Use calls f with a secret's present value, which is overwritten when f returns:
// f must not keep it. NotFound: there is no such secret.
func (v *Vault) Use(ctx context.Context, account, name string, f func(sandbox.SecretValue) error) error {
	const op = "use secret"
	if err := check(account, name); err != nil {
		return &sandbox.Error{Op: op, Err: err}
	}
	entry, err := v.records.Get(ctx, valueKey(account, name))
	if sandbox.KindOf(err) == sandbox.NotFound {
		err = notFound(name)
	}
	if err != nil {
		return &sandbox.Error{Op: op, Err: err}
	}
	value, err := v.sealer.Open(valueKey(account, name), entry.Value)
	if err != nil {
		return &sandbox.Error{Op: op, Err: err}
	}
	defer clear(value)
	return f(value)
}

func (v *Vault) load(ctx context.Context, account, name string) (s sandbox.Secret, revision int64, err error) {
	entry, err := v.records.Get(ctx, knownKey(account, name))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return s, 0, notFound(name)
	}
	if err != nil {
		return s, 0, err
	}
	if err := json.Unmarshal(entry.Value, &s); err != nil {
		return s, 0, sandbox.Errorf("decode "+entry.Key, sandbox.Internal, "%w", err)
	}
	return s, entry.Revision, nil
}

func notFound(name string) error {
	return &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("there is no secret %q", name), Hint: "berth secret ls lists them; berth secret set makes one"}
}

func check(account, name string) error {
	return errors.Join(sandbox.CheckAccount(account), sandbox.CheckSecretName(name))
}

func knownKey(account, name string) string { return knownPrefix + account + "/" + name }
func valueKey(account, name string) string { return valuePrefix + account + "/" + name }
