package bolt

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	bbolt "go.etcd.io/bbolt"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// TestCommitsThatWaitAreWrittenAtOnce lets commits pile up: one transaction of the file
// writes them all, each has its own outcome, and one that was given up is not in it.
func TestCommitsThatWaitAreWrittenAtOnce(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "records.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put := func(ctx context.Context, key string, revision int64) (int64, error) {
		return s.Commit(ctx, record.Txn{If: []record.Cond{{Key: key, Revision: revision}}, Then: []record.Op{{Key: key, Value: []byte(key)}}})
	}
	<-s.writer // as somebody who writes
	before := transactions(t, s)
	const each = 10
	type outcome struct {
		revision int64
		err      error
	}
	var good, bad [each]outcome
	var all sync.WaitGroup
	for i := range each {
		all.Go(func() { good[i].revision, good[i].err = put(t.Context(), fmt.Sprint("good", i), 0) })
		all.Go(func() { bad[i].revision, bad[i].err = put(t.Context(), fmt.Sprint("bad", i), 7) })
	}
	ctx, cancel := context.WithCancel(t.Context())
	given := make(chan error, 1)
	go func() { _, err := put(ctx, "given up", 0); given <- err }()
	await(t, s, 2*each+1)
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Errorf("one that was given up: %v", err)
	}
	s.writer <- struct{}{}
	all.Wait()

	seen := map[int64]bool{}
	for i := range each {
		if good[i].err != nil || good[i].revision == 0 || seen[good[i].revision] {
			t.Errorf("commit %d: revision %d, %v", i, good[i].revision, good[i].err)
		}
		seen[good[i].revision] = true
		if sandbox.KindOf(bad[i].err) != sandbox.Conflict || bad[i].revision != 0 {
			t.Errorf("one whose condition does not hold: revision %d, %v", bad[i].revision, bad[i].err)
		}
		if e, err := s.Get(t.Context(), fmt.Sprint("good", i)); err != nil || e.Revision != good[i].revision {
			t.Errorf("entry %d: %+v, %v; committed as %d", i, e, err, good[i].revision)
		}
		if _, err := s.Get(t.Context(), fmt.Sprint("bad", i)); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("an entry whose condition did not hold: %v", err)
		}
	}
	if _, err := s.Get(t.Context(), "given up"); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("an entry that was given up: %v", err)
	}
	if n := transactions(t, s) - before; n != 1 {
		t.Errorf("they were written in %d transactions", n)
	}
}

// TestNoneOfAGroupHolds writes nothing at all.
func TestNoneOfAGroupHolds(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "records.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	before := transactions(t, s)
	if _, err := s.Commit(t.Context(), record.Txn{If: []record.Cond{{Key: "k", Revision: 3}}}); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("committed: %v", err)
	}
	if n := transactions(t, s) - before; n != 0 {
		t.Errorf("%d transactions were written", n)
	}
}

// TestCloseEndsWhatWaits closes the store while a commit waits behind another.
func TestCloseEndsWhatWaits(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "records.db"))
	if err != nil {
		t.Fatal(err)
	}
	<-s.writer
	waited := make(chan error, 1)
	go func() {
		_, err := s.Commit(context.Background(), record.Txn{Then: []record.Op{{Key: "k"}}})
		waited <- err
	}()
	await(t, s, 1)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a commit that waited when the store was closed: %v", err)
	}
}

// transactions is how many the file has had.
func transactions(t *testing.T, s *Store) (n int) {
	t.Helper()
	if err := s.db.View(func(tx *bbolt.Tx) error { n = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return n
}

// await returns when so many commits wait.
func await(t *testing.T, s *Store, n int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		s.mu.Lock()
		have := len(s.waiting)
		s.mu.Unlock()
		if have == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d commits wait, not %d", have, n)
		}
	}
}
