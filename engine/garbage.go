package engine

import (
	"context"
	"time"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/sandbox"
)

// Times of sweeping.
const (
	sweepRest  = 5 * time.Second // between two sweeps: those who remove much cause few
	sweepAgain = time.Minute     // after one that failed
	kindOfKept = "/"             // in what the timers hold: a key, not a sandbox's id
)

// garbage asks for a sweep of the archive; many who ask get one.
type garbage struct {
	asked chan struct{} // of one
}

func newGarbage() *garbage { return &garbage{asked: make(chan struct{}, 1)} }

func (g *garbage) poke() {
	select {
	case g.asked <- struct{}{}:
	default:
	}
}

// keepClean sweeps the archive whenever somebody has asked for it, until the
// engine closes.
func (e *Engine) keepClean() {
	for {
		select {
		case <-e.garbage.asked:
		case <-e.ctx.Done():
			return
		}
		pause := sweepRest
		swept, err := e.archive.Sweep(e.ctx, e.liveManifests)
		switch {
		case e.ctx.Err() != nil:
			return
		case err != nil:
			e.log.Error("sweep what no snapshot needs", "error", err, "again_in", sweepAgain)
			e.garbage.poke()
			pause = sweepAgain
		case swept.Blobs > 0:
			e.log.Info("swept what no snapshot needs", "blobs", swept.Blobs, "bytes", swept.Bytes)
		}
		rest(e.ctx, pause)
	}
}

// liveManifests are those that a record names.
func (e *Engine) liveManifests(ctx context.Context) ([]blob.Digest, error) {
	var live []blob.Digest
	shots, err := e.shotsOf(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, s := range shots {
		live = append(live, s.Manifest)
	}
	backups, err := e.backupsOf(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, b := range backups {
		live = append(live, b.Manifest)
	}
	lacking, err := e.lacking(ctx)
	return append(live, lacking...), err
}

// openArchive counts what is kept, plans its end, and sweeps what a process
// before has left.
func (e *Engine) openArchive(ctx context.Context) error {
	shots, err := e.shotsOf(ctx, "")
	if err != nil {
		return err
	}
	for _, s := range shots {
		e.ledger.set(s.key(), s.Account, sandbox.Quota{SnapshotBytes: s.Stored})
		e.planExpiry(s.key(), s.Expires)
	}
	backups, err := e.backupsOf(ctx, "")
	if err != nil {
		return err
	}
	for _, b := range backups {
		e.ledger.set(b.key(), b.Account, sandbox.Quota{SnapshotBytes: b.Stored})
		e.planExpiry(b.key(), b.Expires)
	}
	if e.archive != nil {
		e.tasks.Go(e.keepClean)
		e.garbage.poke()
	}
	return nil
}

// planExpiry has something that is kept under a key looked at when it expires.
func (e *Engine) planExpiry(key string, at time.Time) {
	if !at.IsZero() {
		e.timers.set(sandbox.ID(key), at)
	}
}
