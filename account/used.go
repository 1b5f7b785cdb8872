package account

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

const (
	noteEvery = time.Minute // how often it is written when keys were used
	maxUsed   = 10_000      // keys whose use is kept in between; of more, some is not noted
	noteBatch = record.MaxOps
)

// used remembers when keys were used, until it is written.
type used struct {
	mu  sync.Mutex
	all map[usedBy]time.Time
}

type usedBy struct{ account, id string }

func (u *used) touch(account, id string, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	k := usedBy{account, id}
	if _, has := u.all[k]; !has && len(u.all) >= maxUsed {
		return
	}
	if u.all == nil {
		u.all = map[usedBy]time.Time{}
	}
	u.all[k] = at
}

// take returns some of what is to be written, and forgets it.
func (u *used) take(most int) map[usedBy]time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	some := map[usedBy]time.Time{}
	for k, at := range u.all {
		if len(some) == most {
			break
		}
		some[k] = at
		delete(u.all, k)
	}
	return some
}

func (u *used) last(account, id string) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all[usedBy{account, id}]
}

// keepNoting writes now and then when keys were used, until the Book closes.
func (b *Book) keepNoting() {
	t := time.NewTicker(noteEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := b.note(b.ctx); err != nil && b.ctx.Err() == nil {
				b.log.Error("note when keys were used", "error", err, "again_in", noteEvery)
			}
		case <-b.ctx.Done():
			return
		}
	}
}

// note writes when keys were used. What is not written is lost: it is a hint for
// people, not a record.
func (b *Book) note(ctx context.Context) error {
	var errs []error
	for {
		some := b.used.take(noteBatch)
		if len(some) == 0 || ctx.Err() != nil {
			return errors.Join(errs...)
		}
		var t record.Txn
		for k, at := range some {
			entry, err := b.records.Get(ctx, keyIDKey(k.account, k.id))
			if err != nil {
				continue // removed meanwhile, or the commit fails as well
			}
			t.If = append(t.If, record.Cond{Key: entry.Key, Revision: entry.Revision})
			t.Then = append(t.Then, record.Op{Key: usedKey(k.account, k.id), Value: []byte(at.Format(time.RFC3339))})
		}
		if len(t.Then) == 0 {
			continue
		}
		if _, err := b.records.Commit(ctx, t); err != nil && sandbox.KindOf(err) != sandbox.Conflict {
			errs = append(errs, err)
		}
	}
}

// showUsed fills in when a key was last used.
func (b *Book) showUsed(ctx context.Context, k *sandbox.Key) error {
	if at := b.used.last(k.Account, k.ID); !at.IsZero() {
		k.LastUsed = at
		return nil
	}
	entry, err := b.records.Get(ctx, usedKey(k.Account, k.ID))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	k.LastUsed, err = time.Parse(time.RFC3339, string(entry.Value))
	if err != nil {
		return sandbox.Errorf("decode "+entry.Key, sandbox.Internal, "%w", err)
	}
	return nil
}
