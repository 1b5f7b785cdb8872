package account

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// claimPrefix + hash of the secret: the account that it claims.
const claimPrefix = "account-claim/"

// MakeTemporary makes an account for whoever asks from an address, without a key.
// claim is the secret with which a person keeps it.
//
// Unsupported: this server makes none. Exhausted: too many, or too many of that
// address. Forbidden: the work that is asked for was not done.
func (b *Book) MakeTemporary(ctx context.Context, from netip.Addr, req sandbox.TemporaryRequest) (_ sandbox.TemporaryAccount, claim string, err error) {
	t, claim, err := b.makeTemporary(ctx, from, req)
	return t, claim, fail("make temporary account", err)
}

func (b *Book) makeTemporary(ctx context.Context, from netip.Addr, req sandbox.TemporaryRequest) (none sandbox.TemporaryAccount, claim string, err error) {
	terms, err := b.temporary()
	if err != nil {
		return none, "", err
	}
	release, err := b.alone(ctx)
	if err != nil {
		return none, "", err
	}
	defer release()
	if err := b.roomForTemporary(ctx, terms.Most); err != nil {
		return none, "", err
	}
	if err := b.rates.allow(from, terms.Hourly, b.now()); err != nil {
		return none, "", err
	}
	if terms.WorkBits > 0 {
		if err := b.work.spend(req, from, terms.WorkBits); err != nil {
			return none, "", err
		}
	}
	id := "t" + strings.ToLower(rand.Text()[:15])
	claim = newSecret()
	s := &stored{Claim: hashOf(claim), Account: sandbox.Account{ID: id, State: sandbox.AccountTemporary,
		Quota: terms.Quota, Created: b.stamp(), Expires: b.stamp().Add(terms.Lifetime)}}
	k, ops, err := b.draw(id, sandbox.KeyRequest{Label: "temporary"})
	if err != nil {
		return none, "", err
	}
	ops = append(ops, record.Op{Key: claimPrefix + s.Claim, Value: []byte(id)}, record.Op{Key: endingPrefix + id, Value: []byte(id)})
	if err := b.create(ctx, s, ops...); err != nil {
		return none, "", err
	}
	return sandbox.TemporaryAccount{Account: s.Account, Key: k}, claim, nil
}

func (b *Book) temporary() (*Temporary, error) {
	t := b.terms.Load().Temporary
	if t == nil {
		return nil, &sandbox.Error{Kind: sandbox.Unsupported, Err: errors.New("this server makes no temporary accounts"),
			Hint: "ask whoever runs it for a key; the configuration's temporary table allows them"}
	}
	return t, nil
}

// roomForTemporary is Exhausted when there are too many temporary accounts.
func (b *Book) roomForTemporary(ctx context.Context, most int) error {
	count := 0
	if err := b.each(ctx, endingPrefix, func(record.Entry) error { count++; return nil }); err != nil {
		return err
	}
	if count >= most {
		return &sandbox.Error{Kind: sandbox.Exhausted, Err: fmt.Errorf("there are %d temporary accounts, at most %d are made", count, most),
			Hint: "try again later: those that nobody claims go away"}
	}
	return nil
}

// Challenge is the work to do for a temporary account.
func (b *Book) Challenge(_ context.Context, from netip.Addr) (sandbox.Challenge, error) {
	const op = "make challenge"
	terms, err := b.temporary()
	if err != nil {
		return sandbox.Challenge{}, fail(op, err)
	}
	return b.work.challenge(from, terms.WorkBits), nil
}
