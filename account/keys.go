package account

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// The keys of keys.
const (
	keyPrefix   = "account-key/"      // + hash: the key's record as JSON
	keyIDPrefix = "account-key-id/"   // + account/id: the hash
	usedPrefix  = "account-key-used/" // + account/id: when it was last used
)

// maxKeys bounds the keys of one account.
const maxKeys = 100

var keyID = regexp.MustCompile(`^key-[a-z0-9]{12}$`)

// hashOf is what is kept of a secret.
func hashOf(digits string) string {
	sum := sha256.Sum256([]byte(digits))
	return hex.EncodeToString(sum[:])
}

// newSecret returns 40 hex digits, 160 random bits.
func newSecret() string {
	var raw [20]byte
	rand.Read(raw[:]) // never fails: it ends the program instead
	return hex.EncodeToString(raw[:])
}

func keyIDKey(account, id string) string { return keyIDPrefix + account + "/" + id }
func usedKey(account, id string) string  { return usedPrefix + account + "/" + id }

// draw makes a key of an account, and what writes it.
func (b *Book) draw(account string, req sandbox.KeyRequest) (sandbox.NewKey, []record.Op, error) {
	k := sandbox.NewKey{Secret: newSecret(), Key: sandbox.Key{ID: "key-" + strings.ToLower(rand.Text()[:12]),
		Account: account, Label: req.Label, Scopes: slices.Clone(req.Scopes), Created: b.stamp()}}
	k.Ending = k.Secret[len(k.Secret)-4:]
	if len(k.Scopes) == 0 {
		k.Scopes = []sandbox.Scope{sandbox.ScopeAdmin}
	}
	if req.ExpiresSeconds > 0 {
		k.Expires = k.Created.Add(time.Duration(req.ExpiresSeconds) * time.Second)
	}
	value, err := json.Marshal(k.Key)
	if err != nil {
		return k, nil, sandbox.Errorf("encode key", sandbox.Internal, "%w", err)
	}
	hash := hashOf(k.Secret)
	k.Secret = sandbox.KeyPrefix + k.Secret
	return k, []record.Op{{Key: keyPrefix + hash, Value: value}, {Key: keyIDKey(account, k.ID), Value: []byte(hash)}}, nil
}

// CreateKey makes a key of the caller's account.
//
// Exhausted: the account has 100 already.
func (b *Book) CreateKey(ctx context.Context, req sandbox.KeyRequest) (sandbox.NewKey, error) {
	k, err := b.createKey(ctx, req)
	return k, fail("create key", err)
}

func (b *Book) createKey(ctx context.Context, req sandbox.KeyRequest) (sandbox.NewKey, error) {
	var none sandbox.NewKey
	if err := req.Check(); err != nil {
		return none, err
	}
	release, err := b.alone(ctx)
	if err != nil {
		return none, err
	}
	defer release()
	s, err := b.account(ctx, "")
	if err != nil {
		return none, err
	}
	if err := b.open(s); err != nil {
		return none, err
	}
	has, err := b.records.List(ctx, keyIDKey(s.ID, ""), "", maxKeys)
	if err != nil {
		return none, err
	}
	if len(has) >= maxKeys {
		return none, &sandbox.Error{Kind: sandbox.Exhausted, Err: fmt.Errorf("the account has %d keys", len(has)), Hint: "remove one first"}
	}
	k, ops, err := b.draw(s.ID, req)
	if err != nil {
		return none, err
	}
	// The account must still be there: what removes it lists its keys later.
	if _, err := b.records.Commit(ctx, record.Txn{If: []record.Cond{s.cond()}, Then: ops}); err != nil {
		return none, err
	}
	return k, nil
}

// Keys lists the keys of the caller's account, the oldest first.
func (b *Book) Keys(ctx context.Context) ([]sandbox.Key, error) {
	const op = "list keys"
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return nil, fail(op, err)
	}
	all := []sandbox.Key{}
	err = b.each(ctx, keyIDKey(c.Account, ""), func(entry record.Entry) error {
		k, err := b.loadKey(ctx, string(entry.Value))
		if sandbox.KindOf(err) == sandbox.NotFound {
			return nil // removed since the list was read
		}
		if err == nil {
			err = b.showUsed(ctx, k)
		}
		if err == nil {
			all = append(all, *k)
		}
		return err
	})
	slices.SortFunc(all, func(x, y sandbox.Key) int { return x.Created.Compare(y.Created) })
	return all, fail(op, err)
}

func (b *Book) loadKey(ctx context.Context, hash string) (*sandbox.Key, error) {
	entry, err := b.records.Get(ctx, keyPrefix+hash)
	if err != nil {
		return nil, err
	}
	k := &sandbox.Key{}
	if err := json.Unmarshal(entry.Value, k); err != nil {
		return nil, sandbox.Errorf("decode key", sandbox.Internal, "%w", err)
	}
	return k, nil
}

// UpdateKey changes the label of a key of the caller's account.
func (b *Book) UpdateKey(ctx context.Context, id string, u sandbox.KeyUpdate) (sandbox.Key, error) {
	for {
		k, err := b.updateKey(ctx, id, u)
		if sandbox.KindOf(err) == sandbox.Conflict && ctx.Err() == nil {
			continue // changed or removed this moment
		}
		return k, fail("update key", err)
	}
}

func (b *Book) updateKey(ctx context.Context, id string, u sandbox.KeyUpdate) (none sandbox.Key, err error) {
	if err := sandbox.CheckLabel(u.Label); err != nil {
		return none, err
	}
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return none, err
	}
	if !keyID.MatchString(id) {
		return none, noKey()
	}
	hash, err := b.records.Get(ctx, keyIDKey(c.Account, id))
	if err != nil {
		return none, orNoKey(err)
	}
	entry, err := b.records.Get(ctx, keyPrefix+string(hash.Value))
	if err != nil {
		return none, orNoKey(err)
	}
	var k sandbox.Key
	if err := json.Unmarshal(entry.Value, &k); err != nil {
		return none, sandbox.Errorf("decode key", sandbox.Internal, "%w", err)
	}
	k.Label = u.Label
	value, err := json.Marshal(k)
	if err != nil {
		return none, sandbox.Errorf("encode key", sandbox.Internal, "%w", err)
	}
	if _, err := b.records.Commit(ctx, record.Txn{If: []record.Cond{{Key: entry.Key, Revision: entry.Revision}}, Then: []record.Op{{Key: entry.Key, Value: value}}}); err != nil {
		return none, err
	}
	return k, b.showUsed(ctx, &k)
}

// orNoKey is err, or of one that says that nothing is there that the key is not.
func orNoKey(err error) error {
	if sandbox.KindOf(err) == sandbox.NotFound {
		return noKey()
	}
	return err
}

// RemoveKey ends a key of the caller's account, and cuts the requests that were
// let in with it.
func (b *Book) RemoveKey(ctx context.Context, id string) error {
	const op = "remove key"
	c, err := sandbox.CallerOf(ctx)
	if err != nil {
		return fail(op, err)
	}
	if !keyID.MatchString(id) {
		return fail(op, noKey())
	}
	entry, err := b.records.Get(ctx, keyIDKey(c.Account, id))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return fail(op, noKey())
	}
	if err == nil {
		_, err = b.records.Commit(ctx, record.Txn{Then: keyOps(c.Account, id, string(entry.Value))})
	}
	if err != nil {
		return fail(op, err)
	}
	b.visits.cutKey(id)
	return nil
}

// keyOps removes all that is kept of a key.
func keyOps(account, id, hash string) []record.Op {
	return []record.Op{{Key: keyPrefix + hash, Delete: true}, {Key: keyIDKey(account, id), Delete: true}, {Key: usedKey(account, id), Delete: true}}
}

func noKey() error {
	return &sandbox.Error{Kind: sandbox.NotFound, Err: errors.New("no such key"), Hint: "berth key ls lists them"}
}
