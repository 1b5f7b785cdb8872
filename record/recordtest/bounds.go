package recordtest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

func keyBounds(t *testing.T, open Open) {
	s := fresh(t, open)
	for _, key := range []string{"", strings.Repeat("k", record.MaxKey+1)} {
		what := fmt.Sprintf("key of %d bytes", len(key))
		_, err := s.Get(t.Context(), key)
		wantKind(t, "get: "+what, err, sandbox.Invalid)
		_, err = s.Commit(t.Context(), record.Txn{Then: []record.Op{set(key, "")}})
		wantKind(t, "set: "+what, err, sandbox.Invalid)
		_, err = s.Commit(t.Context(), record.Txn{Then: []record.Op{{Key: key, Delete: true}}})
		wantKind(t, "delete: "+what, err, sandbox.Invalid)
		_, err = s.Commit(t.Context(), record.Txn{If: []record.Cond{{Key: key}}})
		wantKind(t, "condition: "+what, err, sandbox.Invalid)
	}
	longest := strings.Repeat("k", record.MaxKey)
	wantValue(t, s, longest, "v", commit(t, s, set(longest, "v")))
	wantKeys(t, s, longest, "", 0, longest)
}

func transactionBounds(t *testing.T, open Open) {
	s := fresh(t, open)
	conds := make([]record.Cond, record.MaxOps+1)
	ops := make([]record.Op, record.MaxOps+1)
	for i := range conds {
		conds[i].Key = fmt.Sprint("c", i)
		ops[i] = set(fmt.Sprint("o", i), "")
	}
	for what, txn := range map[string]record.Txn{
		"too many conditions":        {If: conds, Then: ops[:1]},
		"too many operations":        {Then: ops},
		"value too large":            {Then: []record.Op{ops[0], {Key: "a", Value: make([]byte, record.MaxValue+1)}}},
		"key set twice":              {Then: []record.Op{set("a", "1"), set("b", "1"), set("a", "2")}},
		"key set and deleted":        {Then: []record.Op{set("a", "1"), {Key: "a", Delete: true}}},
		"key in two conditions":      {If: []record.Cond{{Key: "a"}, {Key: "a"}}, Then: ops[:1]},
		"condition below revision 0": {If: []record.Cond{{Key: "a", Revision: -1}}, Then: ops[:1]},
	} {
		_, err := s.Commit(t.Context(), txn)
		wantKind(t, what, err, sandbox.Invalid)
	}
	wantKeys(t, s, "", "", 0)
}

// largestTransaction is at every bound at once.
func largestTransaction(t *testing.T, open Open) {
	s := fresh(t, open)
	txn := record.Txn{}
	for i := range record.MaxOps {
		key := fmt.Sprintf("%0*d", record.MaxKey, i)
		txn.If = append(txn.If, record.Cond{Key: key})
		txn.Then = append(txn.Then, set(key, ""))
	}
	txn.Then[3].Value = bytes.Repeat([]byte{7}, record.MaxValue)
	rev, err := s.Commit(t.Context(), txn)
	if err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, txn.Then[3].Key, string(txn.Then[3].Value), rev)
	found, err := s.List(t.Context(), "0", "", 0)
	if err != nil || len(found) != record.MaxOps {
		t.Errorf("list: %d entries, %v; want %d", len(found), err, record.MaxOps)
	}
}
