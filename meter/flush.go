package meter

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// Bounds on what a crash may cost beyond what the counters tell again.
const (
	mostUnsaved = 50 * time.Millisecond // of CPU
	mostWait    = time.Minute           // between two writes of a gauge
)

// Flush writes what has changed, and that this process lives. One that fails is
// made good by the next.
func (b *Book) Flush(ctx context.Context) error { return b.flush(ctx, false) }

// FlushAll is Flush for the end: it writes all samples that are new, too.
func (b *Book) FlushAll(ctx context.Context) error { return b.flush(ctx, true) }

func (b *Book) flush(ctx context.Context, all bool) error {
	const op = "write sums"
	b.flushing.Lock()
	defer b.flushing.Unlock()
	batch := batch{records: b.records}
	if err := batch.end(ctx, b.gather(ctx, &batch, all)); err != nil {
		return &sandbox.Error{Op: op, Err: err}
	}
	if b.now().Sub(b.pruned) < 24*time.Hour {
		return nil
	}
	if err := b.prune(ctx); err != nil {
		return &sandbox.Error{Op: "remove old sums", Err: err}
	}
	b.pruned = b.now()
	return nil
}

// gather puts all that is due into a batch.
func (b *Book) gather(ctx context.Context, batch *batch, all bool) error {
	now := b.now().UnixMilli()
	for _, id := range b.changedSince(now) {
		if err := b.flushOne(ctx, batch, id, now); err != nil {
			return err
		}
	}
	if err := b.flushTraces(ctx, batch, now, all); err != nil {
		return err
	}
	return batch.add(ctx, nil, record.Op{Key: aliveKey, Value: []byte(strconv.FormatInt(now, 10))})
}

// changedSince lists what must be written.
func (b *Book) changedSince(now int64) (ids []sandbox.ID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, one := range b.boxes {
		held := one.State == sandbox.Running || one.State == sandbox.Paused || one.State == sandbox.Stopped
		if one.dirty || one.unsaved >= mostUnsaved || held && now-one.written >= mostWait.Milliseconds() {
			ids = append(ids, id)
		}
	}
	return ids
}

// flushOne adds to the batch what one sandbox needs: the hours that are over,
// then the gauge without them. An hour that is written twice is the same twice,
// so they need not be of one transaction.
func (b *Book) flushOne(ctx context.Context, batch *batch, id sandbox.ID, now int64) error {
	b.mu.Lock()
	one := b.boxes[id]
	if one == nil {
		b.mu.Unlock()
		return nil
	}
	if one.State != sandbox.Running { // what runs advances with its counters
		one.advance(now, 0, one.Used, one.Disk, nil)
	}
	g := one.clone()
	one.dirty, one.written, one.unsaved = false, now, 0
	b.mu.Unlock()

	failed := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if one := b.boxes[id]; one != nil {
			one.dirty = true
		}
	}
	for _, h := range g.Closed {
		value, err := json.Marshal(h)
		if err == nil {
			err = batch.add(ctx, nil, record.Op{Key: hourKey(g.Account, h.Hour, id), Value: value})
		}
		if err != nil {
			failed()
			return err
		}
	}
	closed := len(g.Closed)
	g.Closed = nil
	if !g.Ended.IsZero() { // the hour in which it ended is complete
		if err := b.closeLast(ctx, batch, g); err != nil {
			failed()
			return err
		}
	}
	ops, err := g.ops()
	if err != nil {
		failed()
		return err
	}
	return batch.add(ctx, func(err error) {
		if err != nil {
			failed()
			return
		}
		b.flushed(id, closed)
	}, ops...)
}

// closeLast writes the last hour of a sandbox that was removed.
func (b *Book) closeLast(ctx context.Context, batch *batch, g *gauge) error {
	if g.Part.empty() {
		return nil
	}
	value, err := json.Marshal(g.Part)
	if err != nil {
		return err
	}
	return batch.add(ctx, nil, record.Op{Key: hourKey(g.Account, g.Part.Hour, g.ID), Value: value})
}

// flushed takes note that a gauge is on record, and so many hours beside it.
func (b *Book) flushed(id sandbox.ID, closed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.boxes[id]
	if one == nil {
		return
	}
	one.Closed = append([]hourly(nil), one.Closed[min(closed, len(one.Closed)):]...)
	if !one.Ended.IsZero() && !one.dirty {
		b.bury(&one.gauge)
		delete(b.boxes, id)
	}
}

// batch gathers operations into transactions as large as they may be.
type batch struct {
	records record.Store
	ops     []record.Op
	then    []func(error) // each once, with the outcome of the transaction
}

// add takes operations that belong together. Unless it is nil, then is called once it
// is known whether they are on record: also if add itself fails.
func (t *batch) add(ctx context.Context, then func(error), ops ...record.Op) error {
	var err error
	if len(t.ops)+len(ops) > record.MaxOps {
		err = t.commit(ctx)
	}
	if err != nil {
		if then != nil {
			then(err)
		}
		return err
	}
	t.ops = append(t.ops, ops...)
	if then != nil {
		t.then = append(t.then, then)
	}
	return nil
}

// commit writes what was gathered and tells those who wait for it.
func (t *batch) commit(ctx context.Context) error {
	ops, then := t.ops, t.then
	t.ops, t.then = nil, nil
	if len(ops) == 0 {
		return nil
	}
	_, err := t.records.Commit(ctx, record.Txn{Then: ops})
	for _, f := range then {
		f(err)
	}
	return err
}

// end commits what is left, unless err says that what belongs with it is not there.
func (t *batch) end(ctx context.Context, err error) error {
	if err == nil {
		return t.commit(ctx)
	}
	for _, f := range t.then {
		f(err)
	}
	t.ops, t.then = nil, nil
	return err
}

// prune removes hours and removed sandboxes that are too old.
func (b *Book) prune(ctx context.Context) error {
	limit := b.now().Add(-b.keep)
	batch := batch{records: b.records}
	err := record.Each(ctx, b.records, hourPrefix, "", func(e record.Entry) error {
		if _, h, _, ok := parseHourKey(e.Key); ok && h < limit.UnixMilli()/hour {
			return batch.add(ctx, nil, record.Op{Key: e.Key, Delete: true})
		}
		return nil
	})
	if err != nil {
		return err
	}
	var old []record.Op
	if err := b.each(ctx, gonePrefix, func(g *gauge) {
		if g.Ended.Before(limit) {
			old = append(old, record.Op{Key: gonePrefix + string(g.ID), Delete: true})
		}
	}); err != nil {
		return err
	}
	for _, op := range old {
		if err := batch.add(ctx, nil, op); err != nil {
			return err
		}
	}
	return batch.end(ctx, nil)
}

func parseHourKey(key string) (account string, h int64, id sandbox.ID, ok bool) {
	words := strings.Split(strings.TrimPrefix(key, hourPrefix), "/")
	if len(words) != 3 {
		return "", 0, "", false
	}
	h, err := strconv.ParseInt(words[1], 16, 64)
	return words[0], h, sandbox.ID(words[2]), err == nil
}
