package engine

import (
	"context"
	"errors"
	"time"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// lackPrefix begins the keys of sandboxes whose machines do not have all of their
// memory yet. + id: the digest of the manifest that it comes from, which is not swept.
const lackPrefix = "lacking/"

func lackKey(id sandbox.ID) string { return lackPrefix + string(id) }

// feedAgain is how long is waited before a machine that could not be fed is tried
// again. It ends by itself if nobody feeds it.
const feedAgain = 2 * time.Second

// restoreEarly makes a machine of what a snapshot holds, of which memory is fetched
// when it is used, and the rest meanwhile.
func (e *Engine) restoreEarly(ctx context.Context, d driver.Early, sh *shot, spec driver.Spec) (driver.Machine, error) {
	dir, fill, release, err := e.takeEarly(ctx, sh, d.Late())
	if err != nil {
		return nil, err
	}
	defer release()
	if fill == nil {
		return d.(driver.Snapshotter).Restore(ctx, spec, dir)
	}
	lacks := record.Op{Key: lackKey(spec.ID), Value: []byte(sh.Manifest)}
	if _, err := e.records.Commit(ctx, record.Txn{Then: []record.Op{lacks}}); err != nil {
		return nil, err
	}
	m, err := d.RestoreEarly(ctx, spec, dir, fill)
	if err != nil {
		undo, cancel := bounded(ctx, undoTime)
		defer cancel()
		return nil, errors.Join(err, e.lacksNothing(undo, spec.ID))
	}
	e.tasks.Go(func() { e.keepFed(spec.ID, d, m) })
	return m, nil
}

// feedOn goes on with what an earlier process has left, if a machine lacks something.
func (e *Engine) feedOn(ctx context.Context, s *stored, m driver.Machine) error {
	_, err := e.records.Get(ctx, lackKey(s.ID))
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	if d, ok := e.drivers[s.Class].(driver.Early); ok {
		e.tasks.Go(func() { e.keepFed(s.ID, d, m) })
	}
	return nil
}

// keepFed sees to it that a machine gets what it lacks, and takes it off the record
// when nothing is lacking. It ends with the machine or the engine.
func (e *Engine) keepFed(id sandbox.ID, d driver.Early, m driver.Machine) {
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	e.tasks.Go(func() { // ends with the machine or with keepFed
		defer cancel()
		m.Wait(ctx)
	})
	for ctx.Err() == nil {
		whole, err := d.Refeed(ctx, m, func(file driver.File, lacks [][2]int64) (driver.Feed, error) {
			return e.refill(ctx, id, d.Late(), file, lacks)
		})
		if err == nil {
			select {
			case <-whole:
			case <-ctx.Done():
			}
			break
		}
		if ctx.Err() == nil {
			e.log.Error("bring a sandbox the rest of its memory", "sandbox", id, "error", err, "again_in", feedAgain)
			rest(ctx, feedAgain)
		}
	}
	if e.ctx.Err() != nil {
		return // the next process goes on
	}
	if err := e.lacksNothing(e.ctx, id); err != nil && e.ctx.Err() == nil {
		e.log.Error("note that a sandbox has all of its memory", "sandbox", id, "error", err)
	} // the next start looks again
}

// refill begins to fetch what a machine lacks of its snapshot.
func (e *Engine) refill(ctx context.Context, id sandbox.ID, name string, file driver.File, lacks [][2]int64) (driver.Feed, error) {
	a, err := e.archived()
	if err != nil {
		return nil, closeAfter(file, err)
	}
	entry, err := e.records.Get(ctx, lackKey(id))
	if err != nil {
		return nil, closeAfter(file, err)
	}
	fill, run, err := a.Refill(ctx, blob.Digest(entry.Value), name, file, lacks)
	if err != nil {
		return nil, closeAfter(file, fromArchive(err))
	}
	e.tasks.Go(func() {
		defer file.Close()
		_ = run(ctx) // the machine is told by the feed
	})
	return fill, nil
}

func closeAfter(file driver.File, err error) error {
	file.Close()
	return err
}

func (e *Engine) lacksNothing(ctx context.Context, id sandbox.ID) error {
	_, err := e.records.Commit(ctx, record.Txn{Then: []record.Op{{Key: lackKey(id), Delete: true}}})
	return err
}

// lacking are the manifests that machines lack something of.
func (e *Engine) lacking(ctx context.Context) (all []blob.Digest, err error) {
	err = e.eachEntry(ctx, lackPrefix, func(entry record.Entry) error {
		all = append(all, blob.Digest(entry.Value))
		return nil
	})
	return all, err
}

// tidyLacking forgets what is on record of machines that are not there any more.
func (e *Engine) tidyLacking(ctx context.Context) error {
	return e.eachEntry(ctx, lackPrefix, func(entry record.Entry) error {
		id := sandbox.ID(entry.Key[len(lackPrefix):])
		if s, err := e.load(ctx, id); err == nil && s.State == sandbox.Running {
			return nil
		} else if err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			return err
		}
		return e.lacksNothing(ctx, id)
	})
}
