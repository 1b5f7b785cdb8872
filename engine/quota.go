package engine

import (
	"context"
	"fmt"
	"sync"

	"github.com/berth-dev/berth/sandbox"
)

// Quotas tells what accounts may use.
type Quotas interface {
	// Quota is what an account may use, or an error if it may use nothing now.
	Quota(ctx context.Context, account string) (sandbox.Quota, error)
}

// ledger is what the accounts use, by what uses it. Whoever wants more asks admit
// first; every commit then notes what the record says. It is made anew from the
// records at each start.
type ledger struct {
	mu   sync.Mutex
	uses map[string]usage
	sums map[string]sandbox.Quota // by account
}

// usage is what one thing uses of its account.
type usage struct {
	account string
	of      sandbox.Quota
	unmade  bool // a create was admitted to it, and has no record yet
}

// quotaFields is the one table of what is summed, with its name for people.
var quotaFields = []struct {
	name  string
	field func(*sandbox.Quota) *int64
}{
	{"sandboxes that run", func(q *sandbox.Quota) *int64 { return &q.Sandboxes }},
	{"cpu_milli of sandboxes that run", func(q *sandbox.Quota) *int64 { return &q.CPUMilli }},
	{"memory_bytes of sandboxes that run", func(q *sandbox.Quota) *int64 { return &q.MemoryBytes }},
	{"disk_bytes of sandboxes", func(q *sandbox.Quota) *int64 { return &q.DiskBytes }},
	{"snapshot_bytes", func(q *sandbox.Quota) *int64 { return &q.SnapshotBytes }},
}

// useOf is what a sandbox uses by its record.
func useOf(s *stored) sandbox.Quota {
	switch s.State {
	case sandbox.Starting, sandbox.Running:
		return sandbox.Quota{Sandboxes: 1, CPUMilli: s.Limits.CPUMilli, MemoryBytes: s.Limits.MemoryBytes, DiskBytes: s.Limits.DiskBytes}
	case sandbox.Paused, sandbox.Stopped:
		return sandbox.Quota{DiskBytes: s.Limits.DiskBytes}
	}
	return sandbox.Quota{}
}

// set notes what something uses now.
func (l *ledger) set(what, account string, of sandbox.Quota) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.write(what, usage{account: account, of: of})
}

// gone notes that a sandbox has no record, unless it is yet to have one.
func (l *ledger) gone(id sandbox.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.uses[string(id)]; !u.unmade {
		l.write(string(id), usage{account: u.account})
	}
}

func (l *ledger) write(what string, u usage) {
	if l.uses == nil {
		l.uses, l.sums = map[string]usage{}, map[string]sandbox.Quota{}
	}
	old := l.uses[what]
	l.add(old.account, old.of, -1)
	l.add(u.account, u.of, 1)
	if u.of == (sandbox.Quota{}) {
		delete(l.uses, what)
	} else {
		l.uses[what] = u
	}
}

func (l *ledger) add(account string, of sandbox.Quota, sign int64) {
	sum := l.sums[account]
	for _, f := range quotaFields {
		*f.field(&sum) += sign * *f.field(&of)
	}
	if sum == (sandbox.Quota{}) {
		delete(l.sums, account)
	} else {
		l.sums[account] = sum
	}
}

// claim raises what something uses to want, unless that is past the quota.
func (l *ledger) claim(what, account string, want, quota sandbox.Quota, unmade bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.uses[what].of
	sum := l.sums[account]
	for _, f := range quotaFields {
		more, most := *f.field(&want)-*f.field(&has), *f.field(&quota)
		if used := *f.field(&sum); more > 0 && most > 0 && used+more > most {
			return &sandbox.Error{Op: "check quota", Kind: sandbox.Exhausted,
				Err:  fmt.Errorf("%s: %d used, %d more asked for, %d allowed", f.name, used, more, most),
				Hint: "pause, stop or remove some, or ask the operator for a larger quota"}
		}
	}
	l.write(what, usage{account, most(has, want), unmade})
	return nil
}

// most is, of each field, the larger.
func most(a, b sandbox.Quota) sandbox.Quota {
	for _, f := range quotaFields {
		*f.field(&a) = max(*f.field(&a), *f.field(&b))
	}
	return a
}

func (l *ledger) of(what string) sandbox.Quota {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.uses[what].of
}

// note brings the ledger to what a record says. While a verb is under way, what
// it was admitted to stays claimed.
func (l *ledger) note(s *stored) {
	of := useOf(s)
	if s.Doing != nil {
		of = most(of, l.of(string(s.ID)))
	}
	l.set(string(s.ID), s.Account, of)
}

// rename gives what one sandbox was admitted to to another id: a create may take
// over a machine that has one.
func (l *ledger) rename(from, to sandbox.ID) {
	if from == to {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	u := l.uses[string(from)]
	l.write(string(from), usage{account: u.account})
	l.write(string(to), u)
}

// forgetUnmade gives back what a create was admitted to that wrote no record.
func (e *Engine) forgetUnmade(s *stored) {
	if s.revision == 0 {
		e.ledger.set(string(s.ID), s.Account, sandbox.Quota{})
	}
}

// admit claims for a sandbox what it will use once it is as s says, or is
// Exhausted. What comes of it is noted by the commit; after an error before any,
// call e.ledger.note with the record as it was.
func (e *Engine) admit(ctx context.Context, s *stored) error {
	return e.claimUse(ctx, usage{s.Account, useOf(s), s.revision == 0}, string(s.ID))
}

// admitUse claims want of an account's quota for something other than a sandbox,
// named by its key in the store. Setting it to nothing gives it back.
func (e *Engine) admitUse(ctx context.Context, account, what string, want sandbox.Quota) error {
	return e.claimUse(ctx, usage{account: account, of: want}, what)
}

func (e *Engine) claimUse(ctx context.Context, want usage, what string) error {
	unlock, err := e.admitting.Lock(ctx, want.account)
	if err != nil {
		return err
	}
	defer unlock()
	quota, err := e.quotaOf(ctx, want.account)
	if err != nil {
		return err
	}
	return e.ledger.claim(what, want.account, want.of, quota, want.unmade)
}

// quotaOf is what an account may use.
func (e *Engine) quotaOf(ctx context.Context, account string) (sandbox.Quota, error) {
	if e.quotas == nil {
		return sandbox.Quota{}, nil
	}
	return e.quotas.Quota(ctx, account)
}

// Used is what an account uses of its quota now.
func (e *Engine) Used(account string) sandbox.Quota {
	e.ledger.mu.Lock()
	defer e.ledger.mu.Unlock()
	return e.ledger.sums[account]
}
