// Package recordtest holds every body of record.Store to its contract.
package recordtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Open returns the store that lives in dir, and ends the test if it cannot.
// Opening dir again after Close gives the same entries.
type Open func(t *testing.T, dir string) record.Store

// Run runs the whole suite.
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Open)
	}{
		{"GetReturnsWhatCommitSet", getReturnsWhatCommitSet},
		{"BytesAreCopied", bytesAreCopied},
		{"ListPages", listPages},
		{"EachPages", eachPages},
		{"ListSortsBytewise", listSortsBytewise},
		{"ListBounds", listBounds},
		{"ListIsOneMoment", listIsOneMoment},
		{"ConditionsGuard", conditionsGuard},
		{"CommitIsAllOrNothing", commitIsAllOrNothing},
		{"DeleteRemoves", deleteRemoves},
		{"RevisionsGrow", revisionsGrow},
		{"KeyBounds", keyBounds},
		{"TransactionBounds", transactionBounds},
		{"LargestTransaction", largestTransaction},
		{"ConcurrentIncrements", concurrentIncrements},
		{"EndedContext", endedContext},
		{"ReopenKeepsAll", reopenKeepsAll},
		{"ClosedIsUnavailable", closedIsUnavailable},
		{"CloseWhileInUse", closeWhileInUse},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, open) })
	}
}

// fresh opens a new store that is closed when the test ends.
func fresh(t *testing.T, open Open) record.Store {
	t.Helper()
	s := open(t, t.TempDir())
	t.Cleanup(func() {
		if err := s.Close(); err != nil && sandbox.KindOf(err) != sandbox.Unavailable {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func set(key, value string) record.Op { return record.Op{Key: key, Value: []byte(value)} }

// commit applies operations without conditions.
func commit(t *testing.T, s record.Store, ops ...record.Op) int64 {
	t.Helper()
	rev, err := s.Commit(t.Context(), record.Txn{Then: ops})
	if err != nil {
		t.Fatalf("commit: %v", err)
	}
	return rev
}

// wantKind checks err's kind, and that it is an Error that says what was tried.
func wantKind(t *testing.T, what string, err error, want sandbox.Kind) {
	t.Helper()
	if got := sandbox.KindOf(err); got != want {
		t.Errorf("%s: kind %q, want %q (error: %v)", what, got, want, err)
	}
	var e *sandbox.Error
	if err != nil && (!errors.As(err, &e) || e.Op == "") {
		t.Errorf("%s: %v (%T) names no operation", what, err, err)
	}
}

func wantValue(t *testing.T, s record.Store, key, value string, revision int64) {
	t.Helper()
	e, err := s.Get(t.Context(), key)
	if err != nil {
		t.Errorf("get %q: %v", key, err)
	} else if e.Key != key || string(e.Value) != value || e.Revision != revision {
		t.Errorf("get %q: %q of revision %d, want %q of %d", key, e.Value, e.Revision, value, revision)
	}
}

func wantAbsent(t *testing.T, s record.Store, key string) {
	t.Helper()
	_, err := s.Get(t.Context(), key)
	wantKind(t, "get "+key, err, sandbox.NotFound)
}

func getReturnsWhatCommitSet(t *testing.T, open Open) {
	s := fresh(t, open)
	wantAbsent(t, s, "a")
	one := commit(t, s, set("a", "1"), set("b", "\x00\xff"))
	if one < 1 {
		t.Errorf("first revision is %d, want 1 or more", one)
	}
	wantValue(t, s, "a", "1", one)
	wantValue(t, s, "b", "\x00\xff", one)
	two := commit(t, s, set("a", ""))
	wantValue(t, s, "a", "", two)
	wantValue(t, s, "b", "\x00\xff", one)
}

func bytesAreCopied(t *testing.T, open Open) {
	s := fresh(t, open)
	value := []byte("kept")
	rev := commit(t, s, record.Op{Key: "a", Value: value})
	copy(value, "XXXX")
	e, err := s.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	copy(e.Value, "YYYY")
	wantValue(t, s, "a", "kept", rev)
}

func conditionsGuard(t *testing.T, open Open) {
	s := fresh(t, open)
	try := func(revision int64, value string) (int64, error) {
		return s.Commit(t.Context(), record.Txn{
			If:   []record.Cond{{Key: "a", Revision: revision}},
			Then: []record.Op{set("a", value)},
		})
	}
	_, err := try(7, "x")
	wantKind(t, "revision of an absent key", err, sandbox.Conflict)
	one, err := try(0, "1")
	if err != nil {
		t.Fatalf("absent key, revision 0: %v", err)
	}
	_, err = try(0, "x")
	wantKind(t, "revision 0 of a present key", err, sandbox.Conflict)
	two, err := try(one, "2")
	if err != nil {
		t.Fatalf("present revision: %v", err)
	}
	_, err = try(one, "x")
	wantKind(t, "older revision", err, sandbox.Conflict)
	wantValue(t, s, "a", "2", two)
	if _, err := s.Commit(t.Context(), record.Txn{If: []record.Cond{{Key: "a", Revision: two}}}); err != nil {
		t.Errorf("a condition without operations: %v", err)
	}
	commit(t, s, record.Op{Key: "a", Delete: true})
	_, err = try(two, "x")
	wantKind(t, "revision of a removed key", err, sandbox.Conflict)
	if _, err := try(0, "3"); err != nil {
		t.Errorf("revision 0 of a removed key: %v", err)
	}
}

func commitIsAllOrNothing(t *testing.T, open Open) {
	s := fresh(t, open)
	one := commit(t, s, set("a", "1"), set("gone", "no"))
	_, err := s.Commit(t.Context(), record.Txn{
		If:   []record.Cond{{Key: "a", Revision: one}, {Key: "b", Revision: one}},
		Then: []record.Op{set("a", "2"), set("c", "2"), {Key: "gone", Delete: true}},
	})
	wantKind(t, "second condition does not hold", err, sandbox.Conflict)
	wantValue(t, s, "a", "1", one)
	wantValue(t, s, "gone", "no", one)
	wantAbsent(t, s, "c")
}

func deleteRemoves(t *testing.T, open Open) {
	s := fresh(t, open)
	commit(t, s, set("a", "1"), set("b", "1"))
	commit(t, s, record.Op{Key: "a", Delete: true}, record.Op{Key: "never", Delete: true})
	wantAbsent(t, s, "a")
	wantAbsent(t, s, "never")
	wantKeys(t, s, "", "", 0, "b")
}

func revisionsGrow(t *testing.T, open Open) {
	dir := t.TempDir()
	var last int64
	for restart := range 4 {
		s := open(t, dir)
		for i := range 5 {
			op := set("k", fmt.Sprint(restart, i))
			if i == 4 {
				op = record.Op{Key: "k", Delete: true} // the newest entry is gone at the restart
			}
			rev := commit(t, s, op)
			if rev <= last {
				t.Errorf("restart %d, commit %d: revision %d after %d", restart, i, rev, last)
			}
			last = rev
		}
		if err := s.Close(); err != nil {
			t.Fatalf("close: %v", err)
		}
	}
}

func reopenKeepsAll(t *testing.T, open Open) {
	dir := t.TempDir()
	s := open(t, dir)
	revs := map[string]int64{}
	for i := range 50 {
		k := fmt.Sprintf("k/%02d", i)
		revs[k] = commit(t, s, set(k, strings.Repeat(k, i)))
	}
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	s = open(t, dir)
	for i := range 50 {
		k := fmt.Sprintf("k/%02d", i)
		wantValue(t, s, k, strings.Repeat(k, i), revs[k])
	}
	if _, err := s.Commit(t.Context(), record.Txn{If: []record.Cond{{Key: "k/07", Revision: revs["k/07"]}}, Then: []record.Op{set("k/07", "new")}}); err != nil {
		t.Errorf("compare-and-set over a restart: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func endedContext(t *testing.T, open Open) {
	s := fresh(t, open)
	one := commit(t, s, set("a", "1"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, "a")
	wantCancelled(t, "get", err)
	_, err = s.List(ctx, "", "", 0)
	wantCancelled(t, "list", err)
	_, err = s.Commit(ctx, record.Txn{Then: []record.Op{set("a", "2")}})
	wantCancelled(t, "commit", err)
	wantValue(t, s, "a", "1", one)
}

func wantCancelled(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%s with an ended context: %v, want it to wrap context.Canceled", what, err)
	}
	wantKind(t, what, err, sandbox.Unavailable)
}
