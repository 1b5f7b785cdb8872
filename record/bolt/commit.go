package bolt

import (
	"context"
	"encoding/binary"

	bbolt "go.etcd.io/bbolt"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Commit implements record.Store. The context bounds the wait for other
// commits; one that has begun runs to its end, so its outcome is always known.
func (s *Store) Commit(ctx context.Context, t record.Txn) (int64, error) {
	const op = "commit records"
	if err := checkTxn(op, t); err != nil {
		return 0, err
	}
	if err := s.lockWriter(ctx); err != nil {
		return 0, wrap(op, err)
	}
	defer func() { s.writer <- struct{}{} }()

	var revision int64
	err := s.db.Update(func(tx *bbolt.Tx) (err error) {
		revision, err = apply(tx.Bucket(entries), t)
		return err
	})
	if err != nil {
		return 0, wrap(op, err)
	}
	return revision, nil
}

func (s *Store) lockWriter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-s.writer:
		return nil
	case <-s.closed:
		return errClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// apply checks the conditions and does the operations within one transaction.
func apply(b *bbolt.Bucket, t record.Txn) (int64, error) {
	for _, c := range t.If {
		if err := holds(b, c); err != nil {
			return 0, err
		}
	}
	revision, err := b.NextSequence()
	if err != nil {
		return 0, err
	}
	for _, o := range t.Then {
		if o.Delete {
			err = b.Delete([]byte(o.Key))
		} else {
			err = b.Put([]byte(o.Key), encode(revision, o.Value))
		}
		if err != nil {
			return 0, err
		}
	}
	return int64(revision), nil
}

func encode(revision uint64, value []byte) []byte {
	v := make([]byte, 0, revisionBytes+len(value))
	return append(binary.BigEndian.AppendUint64(v, revision), value...)
}

// holds returns Conflict unless c is true.
func holds(b *bbolt.Bucket, c record.Cond) error {
	var have int64
	if v := b.Get([]byte(c.Key)); v != nil {
		e, err := decode([]byte(c.Key), v)
		if err != nil {
			return err
		}
		have = e.Revision
	}
	if have != c.Revision {
		return sandbox.Errorf("", sandbox.Conflict, "record %q is of revision %d, not %d", c.Key, have, c.Revision)
	}
	return nil
}

// checkTxn reports an error of kind Invalid for the first bound t breaks.
func checkTxn(op string, t record.Txn) error {
	if len(t.If) > record.MaxOps || len(t.Then) > record.MaxOps {
		return sandbox.Errorf(op, sandbox.Invalid, "%d conditions and %d operations; at most %d of each are taken",
			len(t.If), len(t.Then), record.MaxOps)
	}
	seen := make(map[string]bool, len(t.If))
	for _, c := range t.If {
		if err := checkOnce(op, seen, c.Key); err != nil {
			return err
		}
		if c.Revision < 0 {
			return sandbox.Errorf(op, sandbox.Invalid, "condition on %q: revision %d is negative", c.Key, c.Revision)
		}
	}
	clear(seen)
	for _, o := range t.Then {
		if err := checkOnce(op, seen, o.Key); err != nil {
			return err
		}
		if len(o.Value) > record.MaxValue {
			return sandbox.Errorf(op, sandbox.Invalid, "the value of %q has %d bytes, at most %d are taken", o.Key, len(o.Value), record.MaxValue)
		}
	}
	return nil
}

// checkOnce checks a key and that it was not named before in the same list.
func checkOnce(op string, seen map[string]bool, key string) error {
	if err := checkKey(op, key); err != nil {
		return err
	}
	if seen[key] {
		return sandbox.Errorf(op, sandbox.Invalid, "key %q is named twice", key)
	}
	seen[key] = true
	return nil
}

func checkKey(op, key string) error {
	if len(key) < 1 || len(key) > record.MaxKey {
		return sandbox.Errorf(op, sandbox.Invalid, "a key has 1 to %d bytes, this has %d", record.MaxKey, len(key))
	}
	return nil
}
