package bolt

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"

	bbolt "go.etcd.io/bbolt"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Commit implements record.Store. The context bounds the wait for other
// commits; one that has begun runs to its end, so its outcome is always known.
//
// Those that wait at once are written at once: a commit costs two fsyncs, however
// much is in it.
func (s *Store) Commit(ctx context.Context, t record.Txn) (int64, error) {
	const op = "commit records"
	if err := checkTxn(op, t); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, wrap(op, err)
	}
	c := &commit{txn: t, done: make(chan struct{})}
	s.enqueue(c)
	for {
		select {
		case <-c.done:
			return c.revision, wrap(op, c.err)
		default:
		}
		var gone error
		select {
		case <-c.done:
		case <-s.writer:
			s.writeGroup()
		case <-s.closed:
			gone = errClosed
		case <-ctx.Done():
			gone = ctx.Err()
		}
		if gone == nil {
			continue
		}
		if s.withdraw(c) {
			return 0, wrap(op, gone)
		}
		<-c.done
	}
}

// maxGroup bounds how many commits are written at once.
const maxGroup = 64

// commit is a transaction that waits to be written.
type commit struct {
	txn  record.Txn
	done chan struct{} // closed when the outcome is known

	revision int64
	err      error
}

func (s *Store) enqueue(c *commit) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, c)
}

// withdraw takes a commit back that nobody writes yet; false if somebody does.
func (s *Store) withdraw(c *commit) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.waiting, c)
	if i < 0 {
		return false
	}
	s.waiting = slices.Delete(s.waiting, i, i+1)
	return true
}

// next takes out those that have waited longest.
func (s *Store) next() []*commit {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), maxGroup)
	group := slices.Clone(s.waiting[:n])
	s.waiting = slices.Delete(s.waiting, 0, n)
	return group
}

// errNothing rolls a transaction back in which no commit's conditions hold.
var errNothing = errors.New("nothing is to be written")

// errUnwritten is the outcome of commits whose writing broke off in the midst.
var errUnwritten = errors.New("the transaction was not written")

// writeGroup writes those that wait, in their order, and gives the writer's token
// back. What the disk refuses it refuses to all of them.
func (s *Store) writeGroup() {
	group, err := s.next(), errUnwritten
	defer func() {
		for _, c := range group {
			c.settle(err)
		}
		s.writer <- struct{}{}
	}()
	if len(group) > 0 {
		err = s.db.Update(func(tx *bbolt.Tx) error { return applyAll(tx.Bucket(entries), group) })
	}
}

// settle makes the outcome known: err is that of the whole group.
func (c *commit) settle(err error) {
	if c.err == nil && err != nil && !errors.Is(err, errNothing) {
		c.revision, c.err = 0, err
	}
	close(c.done)
}

// applyAll applies those commits whose conditions hold; the others have their error.
func applyAll(b *bbolt.Bucket, group []*commit) error {
	err := errNothing
	for _, c := range group {
		if c.err = check(b, c.txn); c.err != nil {
			continue
		}
		if c.revision, err = apply(b, c.txn); err != nil {
			return err
		}
	}
	return err
}

// check reports the first condition that does not hold.
func check(b *bbolt.Bucket, t record.Txn) error {
	for _, c := range t.If {
		if err := holds(b, c); err != nil {
			return err
		}
	}
	return nil
}

// apply does the operations.
func apply(b *bbolt.Bucket, t record.Txn) (int64, error) {
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
