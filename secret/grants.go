package secret

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// grantPrefix + id/secret: a sandbox.Grant as JSON.
const grantPrefix = "grant/"

// Grants keeps which sandbox may use which secret. All methods may be called at
// once from many goroutines.
type Grants struct{ records record.Store }

// NewGrants returns the Grants that are on record.
func NewGrants(records record.Store) *Grants { return &Grants{records} }

// Grant gives a sandbox its right to secrets. One that it has, or that was
// revoked, stays as it is: only Restore takes a revocation back.
func (g *Grants) Grant(ctx context.Context, id sandbox.ID, secrets ...string) error {
	const op = "grant"
	var t record.Txn
	for _, s := range slices.Compact(slices.Sorted(slices.Values(secrets))) {
		if err := sandbox.CheckSecretName(s); err != nil {
			return &sandbox.Error{Op: op, ID: id, Err: err}
		}
		_, err := g.records.Get(ctx, grantKey(id, s))
		if err == nil {
			continue
		}
		if sandbox.KindOf(err) != sandbox.NotFound {
			return &sandbox.Error{Op: op, ID: id, Err: err}
		}
		value, err := encodeGrant(newGrant(s))
		if err != nil {
			return &sandbox.Error{Op: op, ID: id, Err: err}
		}
		t.If = append(t.If, record.Cond{Key: grantKey(id, s)})
		t.Then = append(t.Then, record.Op{Key: grantKey(id, s), Value: value})
	}
	if len(t.Then) == 0 {
		return nil
	}
	if len(t.Then) > record.MaxOps {
		return sandbox.Errorf(op, sandbox.Invalid, "%d secrets, at most %d are granted at once", len(t.Then), record.MaxOps)
	}
	if _, err := g.records.Commit(ctx, t); err != nil {
		return &sandbox.Error{Op: op, ID: id, Err: err}
	}
	return nil
}

// Granted reports whether a sandbox may use a secret now: nil, or Forbidden with
// the reason.
func (g *Grants) Granted(ctx context.Context, id sandbox.ID, secret string) error {
	const op = "check grant"
	grant, _, err := g.load(ctx, id, secret)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound:
		return &sandbox.Error{Op: op, Kind: sandbox.Forbidden, Err: errors.New("this sandbox was not granted it"), Hint: "set the sandbox's policy again"}
	case err != nil:
		return &sandbox.Error{Op: op, Err: err}
	case grant.Revoked:
		return &sandbox.Error{Op: op, Kind: sandbox.Forbidden, Err: errors.New("the sandbox's grant was revoked"), Hint: "berth policy ID grant gives it back"}
	}
	return nil
}

// List returns the grants of a sandbox, by secret.
func (g *Grants) List(ctx context.Context, id sandbox.ID) ([]sandbox.Grant, error) {
	const op = "list grants"
	entries, err := g.records.List(ctx, grantPrefix+string(id)+"/", "", record.MaxPage)
	if err != nil {
		return nil, &sandbox.Error{Op: op, ID: id, Err: err}
	}
	all := make([]sandbox.Grant, len(entries))
	for i, e := range entries {
		if err := json.Unmarshal(e.Value, &all[i]); err != nil {
			return nil, sandbox.Errorf(op, sandbox.Internal, "decode %s: %w", e.Key, err)
		}
	}
	return all, nil
}

// Revoke takes a sandbox's right to a secret away; Restore gives it back. No
// other sandbox's changes. Doing so twice is no error.
//
// NotFound: the sandbox was never granted it.
func (g *Grants) Revoke(ctx context.Context, id sandbox.ID, secret string) error {
	return g.set(ctx, "revoke grant", id, secret, true)
}

// Restore is the opposite of Revoke.
func (g *Grants) Restore(ctx context.Context, id sandbox.ID, secret string) error {
	return g.set(ctx, "restore grant", id, secret, false)
}

func (g *Grants) set(ctx context.Context, op string, id sandbox.ID, secret string, revoked bool) error {
	for try := 1; ; try++ {
		err := g.setOnce(ctx, id, secret, revoked)
		if sandbox.KindOf(err) == sandbox.Conflict && try < tries {
			continue
		}
		if err != nil {
			return &sandbox.Error{Op: op, ID: id, Err: err}
		}
		return nil
	}
}

func (g *Grants) setOnce(ctx context.Context, id sandbox.ID, secret string, revoked bool) error {
	if err := sandbox.CheckSecretName(secret); err != nil {
		return err
	}
	grant, revision, err := g.load(ctx, id, secret)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("the sandbox has no grant of %q", secret), Hint: "berth policy ID lists its grants"}
	}
	if err != nil || grant.Revoked == revoked {
		return err
	}
	grant.Revoked = revoked
	value, err := encodeGrant(grant)
	if err != nil {
		return err
	}
	_, err = g.records.Commit(ctx, record.Txn{If: []record.Cond{{Key: grantKey(id, secret), Revision: revision}},
		Then: []record.Op{{Key: grantKey(id, secret), Value: value}}})
	return err
}

// Inherit gives a fork grants of its own for what its parent may use at this
// moment. What was revoked of the parent the child gets as revoked.
func (g *Grants) Inherit(ctx context.Context, parent, child sandbox.ID) error {
	const op = "inherit grants of"
	all, err := g.List(ctx, parent)
	if err != nil {
		return err
	}
	var t record.Txn
	for _, from := range all {
		grant := newGrant(from.Secret)
		grant.Revoked = from.Revoked
		value, err := encodeGrant(grant)
		if err != nil {
			return &sandbox.Error{Op: op, ID: parent, Err: err}
		}
		t.Then = append(t.Then, record.Op{Key: grantKey(child, from.Secret), Value: value})
	}
	return g.commit(ctx, op, parent, t)
}

// Forget removes the grants of a sandbox that is no more.
func (g *Grants) Forget(ctx context.Context, id sandbox.ID) error {
	all, err := g.List(ctx, id)
	if err != nil {
		return err
	}
	var t record.Txn
	for _, grant := range all {
		t.Then = append(t.Then, record.Op{Key: grantKey(id, grant.Secret), Delete: true})
	}
	return g.commit(ctx, "remove grants of", id, t)
}

func (g *Grants) commit(ctx context.Context, op string, id sandbox.ID, t record.Txn) error {
	for some := range slices.Chunk(t.Then, record.MaxOps) { // each may be done again
		if _, err := g.records.Commit(ctx, record.Txn{Then: some}); err != nil {
			return &sandbox.Error{Op: op, ID: id, Err: err}
		}
	}
	return nil
}

func (g *Grants) load(ctx context.Context, id sandbox.ID, secret string) (grant sandbox.Grant, revision int64, err error) {
	entry, err := g.records.Get(ctx, grantKey(id, secret))
	if err != nil {
		return grant, 0, err
	}
	if err := json.Unmarshal(entry.Value, &grant); err != nil {
		return grant, 0, sandbox.Errorf("decode "+entry.Key, sandbox.Internal, "%w", err)
	}
	return grant, entry.Revision, nil
}

func newGrant(secret string) sandbox.Grant {
	return sandbox.Grant{ID: "gr-" + strings.ToLower(rand.Text()[:20]), Secret: secret}
}

func encodeGrant(g sandbox.Grant) ([]byte, error) {
	b, err := json.Marshal(g)
	if err != nil {
		return nil, sandbox.Errorf("encode grant", sandbox.Internal, "%w", err)
	}
	return b, nil
}

func grantKey(id sandbox.ID, secret string) string { return grantPrefix + string(id) + "/" + secret }
