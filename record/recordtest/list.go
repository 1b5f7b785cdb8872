package recordtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

func wantKeys(t *testing.T, s record.Store, prefix, after string, limit int, want ...string) {
	t.Helper()
	found, err := s.List(t.Context(), prefix, after, limit)
	if err != nil {
		t.Errorf("list %q after %q limit %d: %v", prefix, after, limit, err)
		return
	}
	var keys []string
	for _, e := range found {
		keys = append(keys, e.Key)
	}
	if !slices.Equal(keys, want) {
		t.Errorf("list %q after %q limit %d: %q, want %q", prefix, after, limit, keys, want)
	}
}

func listPages(t *testing.T, open Open) {
	s := fresh(t, open)
	wantKeys(t, s, "", "", 0)
	rev := commit(t, s, set("a", "0"), set("b", "1"), set("b/1", "2"), set("b/2", "3"), set("b/3", "4"), set("b0", "5"), set("c", "6"))
	wantKeys(t, s, "", "", 0, "a", "b", "b/1", "b/2", "b/3", "b0", "c")
	wantKeys(t, s, "b/", "", 0, "b/1", "b/2", "b/3")
	wantKeys(t, s, "b", "", 0, "b", "b/1", "b/2", "b/3", "b0")
	wantKeys(t, s, "b/", "", 2, "b/1", "b/2")
	wantKeys(t, s, "b/", "b/2", 2, "b/3")
	wantKeys(t, s, "b/", "b/3", 2)
	wantKeys(t, s, "b/", "b/15", 0, "b/2", "b/3") // a cursor need not exist
	wantKeys(t, s, "b/", "a", 0, "b/1", "b/2", "b/3")
	wantKeys(t, s, "b/", "c", 0)
	wantKeys(t, s, "", "b0", 0, "c")
	wantKeys(t, s, "zz", "", 0)
	found, err := s.List(t.Context(), "c", "", 0)
	if err != nil || len(found) != 1 || string(found[0].Value) != "6" || found[0].Revision != rev {
		t.Errorf("list c: %+v, %v; want value 6 of revision %d", found, err, rev)
	}
}

// eachPages reads more than a page holds.
func eachPages(t *testing.T, open Open) {
	s := fresh(t, open)
	var want []string
	var ops []record.Op
	for i := range 2*record.MaxPage + 1 {
		key := fmt.Sprintf("k/%05d", i)
		want, ops = append(want, key), append(ops, set(key, ""))
	}
	for some := range slices.Chunk(ops, record.MaxOps) {
		commit(t, s, some...)
	}
	commit(t, s, set("j", ""), set("l", ""))
	var got []string
	err := record.Each(t.Context(), s, "k/", want[9], func(e record.Entry) error {
		got = append(got, e.Key)
		return nil
	})
	if err != nil || !slices.Equal(got, want[10:]) {
		t.Errorf("%d entries of %d, %v", len(got), len(want)-10, err)
	}
	enough, seen := errors.New("enough"), 0
	err = record.Each(t.Context(), s, "k/", "", func(record.Entry) error { seen++; return enough })
	if !errors.Is(err, enough) || seen != 1 {
		t.Errorf("it goes on for %d after %v", seen, err)
	}
}

func listSortsBytewise(t *testing.T, open Open) {
	s := fresh(t, open)
	keys := []string{"\x00", "\x00\x00", "A", "Z", "a", "a\x00", "aa", "é", "\xff", "\xff\xff"}
	for _, k := range keys {
		commit(t, s, set(k, ""))
	}
	slices.Sort(keys)
	wantKeys(t, s, "", "", 0, keys...)
	for i, k := range keys {
		wantKeys(t, s, "", k, 0, keys[i+1:]...)
	}
	wantKeys(t, s, "\xff", "", 0, "\xff", "\xff\xff")
}

func listBounds(t *testing.T, open Open) {
	s := fresh(t, open)
	for i := 0; i < record.MaxPage+10; i += record.MaxOps {
		var ops []record.Op
		for j := i; j < min(i+record.MaxOps, record.MaxPage+10); j++ {
			ops = append(ops, set(fmt.Sprintf("k%06d", j), ""))
		}
		commit(t, s, ops...)
	}
	for _, limit := range []int{0, record.MaxPage} {
		found, err := s.List(t.Context(), "k", "", limit)
		if err != nil || len(found) != record.MaxPage {
			t.Errorf("limit %d: %d entries, %v; want %d", limit, len(found), err, record.MaxPage)
		}
	}
	wantKeys(t, s, "k", fmt.Sprintf("k%06d", record.MaxPage+8), 0, fmt.Sprintf("k%06d", record.MaxPage+9))
	for _, limit := range []int{-1, record.MaxPage + 1} {
		_, err := s.List(t.Context(), "k", "", limit)
		wantKind(t, fmt.Sprint("limit ", limit), err, sandbox.Invalid)
	}
}

// listIsOneMoment reads pairs that every commit changes together.
func listIsOneMoment(t *testing.T, open Open) {
	s := fresh(t, open)
	pair := func(i int) []record.Op {
		return []record.Op{set("p/a", fmt.Sprint(i)), set("p/z", fmt.Sprint(i))}
	}
	commit(t, s, pair(0)...)
	const changes = 40
	var writing sync.WaitGroup
	stop := make(chan struct{})
	writing.Go(func() {
		defer close(stop)
		for i := range changes {
			if _, err := s.Commit(t.Context(), record.Txn{Then: pair(i + 1)}); err != nil {
				t.Errorf("commit: %v", err)
				return
			}
		}
	})
	defer writing.Wait()
	for {
		found, err := s.List(t.Context(), "p/", "", 0)
		if err != nil || len(found) != 2 {
			t.Fatalf("list: %d entries, %v", len(found), err)
		}
		if string(found[0].Value) != string(found[1].Value) || found[0].Revision != found[1].Revision {
			t.Fatalf("list mixes two moments: %s and %s", found[0].Value, found[1].Value)
		}
		select {
		case <-stop:
			return
		default:
		}
	}
}
