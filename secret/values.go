package secret

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// valuesPrefix + id/set: the texts of one policy of a sandbox by sandbox.RuleValue's
// Key, as JSON, sealed under this very key. A set never changes.
const valuesPrefix = "values/"

// Values keeps the texts that policies set as they stand, each sandbox's own. All
// methods may be called at once from many goroutines.
type Values struct {
	records record.Store
	sealer  *Sealer
}

// NewValues returns the Values that are on record.
func NewValues(records record.Store, sealer *Sealer) *Values { return &Values{records, sealer} }

// Keep makes a set of a sandbox. A value without a text has the one that the set
// before has under its key; "" is no set. None at all needs no set.
//
// Invalid: a value has neither. Conflict: the set is there.
func (v *Values) Keep(ctx context.Context, id sandbox.ID, set, before string, values []sandbox.RuleValue) error {
	if len(values) == 0 {
		return nil
	}
	if err := v.keep(ctx, id, set, before, values); err != nil {
		return &sandbox.Error{Op: "keep values of", ID: id, Err: err}
	}
	return nil
}

func (v *Values) keep(ctx context.Context, id sandbox.ID, set, before string, values []sandbox.RuleValue) error {
	var had map[string]string
	all := make(map[string]string, len(values))
	for _, one := range values {
		if _, twice := all[one.Key]; twice {
			continue // of two rules that set one header the first counts
		}
		if one.Text != nil {
			all[one.Key] = string(*one.Text)
			continue
		}
		if had == nil && before != "" {
			var err error
			if had, err = v.Open(ctx, id, before); err != nil {
				return err
			}
		}
		text, ok := had[one.Key]
		if !ok {
			return &sandbox.Error{Kind: sandbox.Invalid, Err: fmt.Errorf("the header %s of %s has no value that could be kept", one.Header, one.Host),
				Hint: "give its value: null keeps the one that the rule of this host, methods and paths has"}
		}
		all[one.Key] = text
	}
	return v.put(ctx, valuesKey(id, set), all)
}

// put seals a set and puts it on record.
func (v *Values) put(ctx context.Context, key string, all map[string]string) error {
	plain, err := json.Marshal(all)
	if err != nil {
		return sandbox.Errorf("encode values", sandbox.Internal, "%w", err)
	}
	defer clear(plain)
	sealed, err := v.sealer.Seal(key, plain)
	if err != nil {
		return err
	}
	_, err = v.records.Commit(ctx, record.Txn{If: []record.Cond{{Key: key}}, Then: []record.Op{{Key: key, Value: sealed}}})
	return err
}

// Open returns the texts of a set by their keys. NotFound: there is no such set.
func (v *Values) Open(ctx context.Context, id sandbox.ID, set string) (map[string]string, error) {
	const op = "open values"
	entry, err := v.records.Get(ctx, valuesKey(id, set))
	if err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	all, err := v.open(entry)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	return all, nil
}

func (v *Values) open(entry record.Entry) (map[string]string, error) {
	plain, err := v.sealer.Open(entry.Key, entry.Value)
	if err != nil {
		return nil, err
	}
	defer clear(plain)
	var all map[string]string
	if err := json.Unmarshal(plain, &all); err != nil {
		return nil, sandbox.Errorf("decode values", sandbox.Internal, "it is not what was sealed") // err may hold some of it
	}
	return all, nil
}

// Inherit gives a copy of a sandbox sets of its own, equal to its parent's. Doing
// so twice is no error.
func (v *Values) Inherit(ctx context.Context, parent, child sandbox.ID) error {
	const op = "inherit values of"
	entries, err := v.list(ctx, parent)
	if err != nil {
		return &sandbox.Error{Op: op, ID: parent, Err: err}
	}
	for _, e := range entries {
		all, err := v.open(e)
		if err == nil {
			err = v.put(ctx, valuesKey(child, e.Key[len(valuesKey(parent, "")):]), all)
		}
		if err != nil && sandbox.KindOf(err) != sandbox.Conflict { // it has inherited already
			return &sandbox.Error{Op: op, ID: parent, Err: err}
		}
	}
	return nil
}

// Prune removes the sets of a sandbox but for one; "" removes all.
func (v *Values) Prune(ctx context.Context, id sandbox.ID, keep string) error {
	const op = "remove values of"
	entries, err := v.list(ctx, id)
	if err != nil {
		return &sandbox.Error{Op: op, ID: id, Err: err}
	}
	var t record.Txn
	for _, e := range entries {
		if keep == "" || e.Key != valuesKey(id, keep) {
			t.Then = append(t.Then, record.Op{Key: e.Key, Delete: true})
		}
	}
	if len(t.Then) == 0 {
		return nil
	}
	if _, err := v.records.Commit(ctx, t); err != nil {
		return &sandbox.Error{Op: op, ID: id, Err: err}
	}
	return nil
}

// list returns the sets of a sandbox: two at most, while a policy changes, and
// what changes that were cut short have left.
func (v *Values) list(ctx context.Context, id sandbox.ID) ([]record.Entry, error) {
	return v.records.List(ctx, valuesKey(id, ""), "", record.MaxOps)
}

func valuesKey(id sandbox.ID, set string) string { return valuesPrefix + string(id) + "/" + set }
