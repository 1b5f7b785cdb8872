package engine

import (
	"context"
	"encoding/json"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// giveOwners brings what was written before there were accounts into the main
// account: each thing in one transaction, so that whoever is cut short goes on.
func (e *Engine) giveOwners(ctx context.Context) error {
	if err := e.each(ctx, func(s *stored) error {
		if !s.unowned {
			return nil
		}
		return e.giveOwner(ctx, s)
	}); err != nil {
		return err
	}
	return e.eachEntry(ctx, hookPrefix+hookIDPrefix, func(entry record.Entry) error {
		h, err := decodeHook(entry)
		if err != nil {
			return err
		}
		h.Account = sandbox.MainAccount
		value, err := json.Marshal(h)
		if err != nil {
			return sandbox.Errorf("encode webhook", sandbox.Internal, "%w", err)
		}
		_, err = e.records.Commit(ctx, record.Txn{Then: []record.Op{
			{Key: entry.Key, Delete: true}, {Key: h.key(), Value: value},
		}})
		return err
	})
}

func (e *Engine) giveOwner(ctx context.Context, s *stored) error {
	value, err := json.Marshal(s)
	if err != nil {
		return sandbox.Errorf("encode record", sandbox.Internal, "%w", err)
	}
	t := record.Txn{Then: []record.Op{{Key: recordKey(s.ID), Value: value}}}
	for _, key := range s.indexes() {
		t.Then = append(t.Then, record.Op{Key: key, Value: []byte(s.ID)})
	}
	if old := namePrefix + s.Name; s.living() && s.Name != "" {
		t.Then = append(t.Then, record.Op{Key: old, Delete: true}, record.Op{Key: nameKey(s.Account, s.Name), Value: []byte(s.ID)})
	}
	_, err = e.records.Commit(ctx, t)
	return err
}
