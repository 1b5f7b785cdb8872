package engine

import (
	"context"
	"strings"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// expire removes what is kept under a key if its time has come, and says when to
// look again; zero means never.
func (e *Engine) expire(ctx context.Context, key string) time.Time {
	at, remove, err := e.expiring(ctx, key)
	switch {
	case sandbox.KindOf(err) == sandbox.NotFound || err == nil && at.IsZero():
		return time.Time{}
	case err == nil && e.now().Before(at):
		return at
	case err == nil:
		err = remove()
	}
	if err == nil || sandbox.KindOf(err) == sandbox.NotFound {
		return time.Time{}
	}
	if ctx.Err() == nil {
		e.log.Warn("remove what has expired", "key", key, "error", err, "again_in", retryAfter)
	}
	return e.now().Add(retryAfter)
}

// expiring reads when what is kept under a key expires, and what removes it.
func (e *Engine) expiring(ctx context.Context, key string) (at time.Time, remove func() error, err error) {
	entry, err := e.records.Get(ctx, key)
	if err != nil {
		return at, nil, err
	}
	if strings.HasPrefix(key, backupPrefix) {
		return e.expiringBackup(ctx, entry)
	}
	sh, err := decodeShot(entry)
	if err != nil {
		return at, nil, err
	}
	return sh.Expires, func() error { return e.removeShot(ctx, sh) }, nil
}

func (e *Engine) expiringBackup(ctx context.Context, entry record.Entry) (at time.Time, remove func() error, err error) {
	b, err := decodeBackup(entry)
	if err != nil {
		return at, nil, err
	}
	return b.Expires, func() error { return e.removeBackup(ctx, b) }, nil
}
