package recordtest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// concurrentIncrements adds to one counter from many goroutines, each by
// compare-and-set until it holds: no addition is lost, and no revision is
// given twice.
func concurrentIncrements(t *testing.T, open Open) {
	s := fresh(t, open)
	const workers, each = 8, 10
	var revisions sync.Map
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range each {
				rev, err := increment(t, s)
				if err != nil {
					t.Errorf("increment: %v", err)
					return
				}
				if _, twice := revisions.LoadOrStore(rev, true); twice {
					t.Errorf("revision %d was given twice", rev)
				}
			}
		})
	}
	all.Wait()
	e, err := s.Get(t.Context(), "counter")
	if err != nil || string(e.Value) != fmt.Sprint(workers*each) {
		t.Errorf("counter is %q, %v; want %d", e.Value, err, workers*each)
	}
}

// increment tries until no other is quicker.
func increment(t *testing.T, s record.Store) (int64, error) {
	for {
		e, err := s.Get(t.Context(), "counter")
		n := 0
		switch sandbox.KindOf(err) {
		case "":
			if n, err = strconv.Atoi(string(e.Value)); err != nil {
				return 0, err
			}
		case sandbox.NotFound:
		default:
			return 0, err
		}
		rev, err := s.Commit(t.Context(), record.Txn{
			If:   []record.Cond{{Key: "counter", Revision: e.Revision}},
			Then: []record.Op{set("counter", strconv.Itoa(n+1))},
		})
		if sandbox.KindOf(err) != sandbox.Conflict {
			return rev, err
		}
	}
}

func closedIsUnavailable(t *testing.T, open Open) {
	s := open(t, t.TempDir())
	commit(t, s, set("a", "1"))
	if err := s.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	_, err := s.Get(t.Context(), "a")
	wantKind(t, "get", err, sandbox.Unavailable)
	_, err = s.List(t.Context(), "", "", 0)
	wantKind(t, "list", err, sandbox.Unavailable)
	_, err = s.Commit(t.Context(), record.Txn{Then: []record.Op{set("a", "2")}})
	wantKind(t, "commit", err, sandbox.Unavailable)
	if err := s.Close(); err != nil && sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("second close: %v", err)
	}
}

// closeWhileInUse closes the store under running calls: each of them succeeds
// or is Unavailable, and what succeeded is there afterwards.
func closeWhileInUse(t *testing.T, open Open) {
	dir := t.TempDir()
	s := open(t, dir)
	var mu sync.Mutex
	committed := map[string]int64{}
	started := make(chan struct{}, 64)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d/%06d", w, i)
				rev, err := s.Commit(t.Context(), record.Txn{Then: []record.Op{set(key, "v")}})
				if err == nil {
					_, err = s.List(t.Context(), "", "", 10)
					mu.Lock()
					committed[key] = rev
					mu.Unlock()
				}
				if err != nil {
					var e *sandbox.Error
					if sandbox.KindOf(err) != sandbox.Unavailable || !errors.As(err, &e) {
						t.Errorf("call while closing: %v", err)
					}
					return
				}
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	for range 12 {
		<-started
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	all.Wait()
	s = open(t, dir)
	for key, rev := range committed {
		wantValue(t, s, key, "v", rev)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
