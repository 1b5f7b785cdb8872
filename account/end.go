package account

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

const (
	sweepEvery = 15 * time.Second // how often it is looked for accounts whose time has come
	cutTime    = 30 * time.Second // for the requests of one account to end
	clearTime  = 5 * time.Minute  // for the removal of one account, until it is tried again
)

// An account ends in steps, each of which can be done again: its record says
// removing, and from then on its keys open nothing and it may use nothing; what
// is under way for it is cut; what it has is cleared; its keys go; its record
// goes, or stays as the mark of an id that is used up. Whoever claims it and
// whoever begins to remove it change the same record: one of them is told that it
// is another by now.

// RemoveAccount removes an account with all it has, for the operator, and waits
// for that. What has begun is finished although ctx ends, or the server.
//
// Invalid: the main account.
func (b *Book) RemoveAccount(ctx context.Context, id string) error {
	return fail("remove account", b.removeAccount(ctx, id))
}

func (b *Book) removeAccount(ctx context.Context, id string) error {
	if err := operator(ctx); err != nil {
		return err
	}
	if id == sandbox.MainAccount {
		return &sandbox.Error{Kind: sandbox.Invalid, Err: errors.New("the main account stays"), Hint: "remove its sandboxes and keys one by one"}
	}
	for {
		s, err := b.load(ctx, id)
		if err == nil {
			err = b.beginEnd(ctx, s)
		}
		if err == nil {
			break
		}
		if sandbox.KindOf(err) != sandbox.Conflict || ctx.Err() != nil {
			return err
		}
	}
	for {
		looked := b.swept.wait()
		b.sweepSoon()
		_, err := b.load(ctx, id)
		if sandbox.KindOf(err) == sandbox.NotFound {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-looked:
		case <-b.ctx.Done():
			return &sandbox.Error{Kind: sandbox.Unavailable, Err: errors.New("the server is shutting down"), Hint: "the next one goes on with it"}
		case <-ctx.Done():
			return &sandbox.Error{Err: context.Cause(ctx), Hint: "it goes on being removed"}
		}
	}
}

// beginEnd says that an account is being removed, unless it is another by now.
func (b *Book) beginEnd(ctx context.Context, s *stored) error {
	if s.State == sandbox.AccountRemoving {
		return nil
	}
	claim := s.Claim
	s.State, s.Claim = sandbox.AccountRemoving, ""
	ops := []record.Op{{Key: endingPrefix + s.ID, Value: []byte(s.ID)}}
	if claim != "" {
		ops = append(ops, record.Op{Key: claimPrefix + claim, Delete: true})
	}
	return b.save(ctx, s, ops...)
}

// keepSweeping removes what is to be removed, until the Book closes.
func (b *Book) keepSweeping() {
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	for {
		if err := b.sweep(b.ctx); err != nil && b.ctx.Err() == nil {
			b.log.Error("remove accounts", "error", err, "again_in", sweepEvery)
		}
		b.swept.fire()
		select {
		case <-t.C:
		case <-b.kick:
		case <-b.ctx.Done():
			return
		}
	}
}

func (b *Book) sweepSoon() {
	select {
	case b.kick <- struct{}{}:
	default: // it looks soon already
	}
}

// sweep ends the temporary accounts that nobody has claimed in time, and goes on
// with what is being removed. One that cannot be removed now holds up no other.
func (b *Book) sweep(ctx context.Context) error {
	var errs []error
	err := b.each(ctx, endingPrefix, func(entry record.Entry) error {
		if err := b.sweepOne(ctx, string(entry.Value)); err != nil {
			errs = append(errs, fail("remove account "+string(entry.Value), err))
		}
		return ctx.Err()
	})
	return errors.Join(append(errs, err)...)
}

func (b *Book) sweepOne(ctx context.Context, id string) error {
	s, err := b.load(ctx, id)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil // gone since the list was read
	}
	if err != nil {
		return err
	}
	if s.State == sandbox.AccountTemporary && !b.now().Before(s.Expires) {
		err := b.beginEnd(ctx, s)
		if sandbox.KindOf(err) == sandbox.Conflict {
			return nil // it was claimed this moment
		}
		if err != nil {
			return err
		}
		b.log.Info("a temporary account was not claimed", "account", id)
	}
	if s.State != sandbox.AccountRemoving {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, clearTime)
	defer cancel()
	return b.finishEnd(ctx, s)
}

// finishEnd removes what an account has, and then the account.
func (b *Book) finishEnd(ctx context.Context, s *stored) error {
	if err := b.cut(ctx, s.ID); err != nil {
		return err
	}
	if err := b.estate.Clear(ctx, s.ID); err != nil {
		return err
	}
	if err := b.removeKeys(ctx, s.ID); err != nil {
		return err
	}
	ending := record.Op{Key: endingPrefix + s.ID, Delete: true}
	if !s.Expires.IsZero() { // its id was drawn, and is not drawn again
		_, err := b.records.Commit(ctx, record.Txn{If: []record.Cond{s.cond()}, Then: []record.Op{{Key: s.key(), Delete: true}, ending}})
		return err
	}
	s.Account = sandbox.Account{ID: s.ID, State: removed, Created: s.Created}
	return b.save(ctx, s, ending)
}

// cut ends what is under way for an account, and waits for it.
func (b *Book) cut(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, cutTime)
	defer cancel()
	return b.visits.clear(ctx, id)
}

// removeKeys removes the keys of an account. There are no new ones: a key is
// written only while its account is as it was.
func (b *Book) removeKeys(ctx context.Context, account string) error {
	return b.each(ctx, keyIDKey(account, ""), func(entry record.Entry) error {
		id := entry.Key[len(keyIDKey(account, "")):]
		_, err := b.records.Commit(ctx, record.Txn{Then: keyOps(account, id, string(entry.Value))})
		return err
	})
}
