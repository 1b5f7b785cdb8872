package account_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

var errKilled = errors.New("killed")

// mortal is a store whose process dies at one commit, before or after it: from
// then on nothing works.
type mortal struct {
	record.Store
	mu    sync.Mutex
	count int
	at    int // the commit to die at; 0: none
	after bool
	dead  bool
}

func (m *mortal) Commit(ctx context.Context, t record.Txn) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	if m.dead || m.count == m.at && !m.after {
		m.dead = true
		return 0, errKilled
	}
	revision, err := m.Store.Commit(ctx, t)
	if m.count == m.at && m.after {
		m.dead = true
		return 0, errKilled
	}
	return revision, err
}

func (m *mortal) Get(ctx context.Context, key string) (record.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dead {
		return record.Entry{}, errKilled
	}
	return m.Store.Get(ctx, key)
}

// TestCrashes kills the process at every commit of a claim, of an end and of a
// removal, and starts it again: an account is there with all its keys, or nothing
// of it is.
func TestCrashes(t *testing.T) {
	hour := func(w *town) { w.clock.advance(time.Hour) }
	for name, verb := range map[string]func(t *testing.T, w *town, id, claim string) error{
		"claim":  func(t *testing.T, w *town, id, claim string) error { return second(w.Claim(t.Context(), claim)) },
		"expire": func(t *testing.T, w *town, id, claim string) error { hour(w); return w.Sweep(t.Context()) },
		"claim and expire": func(t *testing.T, w *town, id, claim string) error {
			err := second(w.Claim(t.Context(), claim))
			hour(w)
			return errors.Join(err, w.Sweep(t.Context()))
		},
		"remove": func(t *testing.T, w *town, id, claim string) error {
			ctx, cancel := context.WithTimeout(operator(t), 5*time.Second)
			defer cancel()
			return w.RemoveAccount(ctx, id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			for at := 1; ; at++ {
				if crash(t, name, verb, at) {
					t.Logf("%d commits", at-1)
					if at == 1 {
						t.Error("nothing was killed")
					}
					return
				}
			}
		})
	}
}

// crash runs a verb that is killed at a commit, and says that it has fewer.
func crash(t *testing.T, name string, verb func(t *testing.T, w *town, id, claim string) error, at int) (done bool) {
	t.Helper()
	for _, after := range []bool{false, true} {
		w := newTown(t, temporary)
		m := &mortal{Store: w.records}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		w.open(t, m, temporary)
		a, claim := w.temporary(t)
		m.mu.Lock()
		m.at, m.after = m.count+at, after
		m.mu.Unlock()
		err := verb(t, w, a.Account.ID, claim)
		m.mu.Lock()
		done, m.dead = !m.dead, true
		m.mu.Unlock()
		if done && err != nil {
			t.Fatalf("undisturbed: %v", err)
		}
		w.open(t, w.records, temporary)
		if err := w.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		whole(t, w, a, claim, name, at, after, err)
		if done {
			return true
		}
	}
	return false
}

// whole checks what is left of an account.
func whole(t *testing.T, w *town, a sandbox.TemporaryAccount, claim, name string, at int, after bool, err error) {
	t.Helper()
	keys := w.keys(t)
	one, gerr := w.Account(operator(t), a.Account.ID)
	switch {
	case sandbox.KindOf(gerr) == sandbox.NotFound:
		if len(keys) > 0 || !slices.Contains(w.estate.list(), a.Account.ID) {
			t.Errorf("killed at %d (after: %v): it is gone, and left %q; cleared %q", at, after, keys, w.estate.list())
		}
		if strings.HasPrefix(name, "claim") && err == nil {
			t.Errorf("killed at %d (after: %v): a claim was answered, and is lost", at, after)
		}
	case gerr != nil:
		t.Fatal(gerr)
	case one.State == sandbox.AccountActive:
		if slices.Contains(w.estate.list(), a.Account.ID) {
			t.Errorf("killed at %d (after: %v): it is claimed, and was cleared", at, after)
		}
		if all, err := w.Keys(w.as(t, one.ID)); err != nil || len(all) != 2 {
			t.Errorf("killed at %d (after: %v): claimed with the keys %+v, %v", at, after, all, err)
		}
	case one.State == sandbox.AccountTemporary:
		if got, err := w.Claimable(t.Context(), claim); err != nil || got.ID != one.ID || name == "expire" {
			t.Errorf("killed at %d (after: %v): it is %+v, %v", at, after, one, err)
		}
	default:
		t.Errorf("killed at %d (after: %v): it is %+v", at, after, one)
	}
}
