package account

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Claimable returns the account that a claim's secret keeps, or NotFound: it was
// claimed, its time has passed, or there never was one.
func (b *Book) Claimable(ctx context.Context, claim string) (sandbox.Account, error) {
	s, err := b.claimable(ctx, claim)
	if err != nil {
		return sandbox.Account{}, fail("find claim", err)
	}
	return s.Account, nil
}

func (b *Book) claimable(ctx context.Context, claim string) (*stored, error) {
	entry, err := b.records.Get(ctx, claimPrefix+hashOf(claim))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, noClaim()
	}
	if err != nil {
		return nil, err
	}
	s, err := b.load(ctx, string(entry.Value))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil, noClaim()
	}
	if err == nil && (s.State != sandbox.AccountTemporary || !b.now().Before(s.Expires)) {
		return nil, noClaim()
	}
	return s, err
}

func noClaim() error {
	return &sandbox.Error{Kind: sandbox.NotFound, Err: errors.New("there is nothing to claim: it was claimed, or its time has passed"),
		Hint: "make another temporary account"}
}

// Claim keeps a temporary account with all it has, and makes a key for the person
// who claims it. The keys that it has go on to open it. A secret claims once.
func (b *Book) Claim(ctx context.Context, claim string) (sandbox.NewKey, error) {
	k, err := b.claim(ctx, claim)
	return k, fail("claim account", err)
}

func (b *Book) claim(ctx context.Context, claim string) (sandbox.NewKey, error) {
	for {
		s, err := b.claimable(ctx, claim)
		if err != nil {
			return sandbox.NewKey{}, err
		}
		k, ops, err := b.draw(s.ID, sandbox.KeyRequest{Label: "claimed"})
		if err != nil {
			return sandbox.NewKey{}, err
		}
		ops = append(ops, record.Op{Key: claimPrefix + s.Claim, Delete: true}, record.Op{Key: endingPrefix + s.ID, Delete: true})
		s.State, s.Claim, s.Quota = sandbox.AccountActive, "", b.terms.Load().Quota
		s.Expires = time.Time{}
		err = b.save(ctx, s, ops...)
		if sandbox.KindOf(err) == sandbox.Conflict && ctx.Err() == nil {
			continue // claimed, changed or ended this moment
		}
		if err != nil {
			return sandbox.NewKey{}, err
		}
		return k, nil
	}
}
