package cloudflare

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// limitVariable holds, in the shell of a session, how many milliseconds a command has
// that says nothing of its time. So it is kept for as long as the session is, in forks
// and over restarts of the server; it is not exported.
const limitVariable = "__berth_cf_limit"

// maxLimits is of how many sessions that is remembered; the others are asked again.
const maxLimits = 10_000

// limits remembers what sessions have said.
type limits struct {
	mu  sync.Mutex
	all map[string]time.Duration
	old []string
}

func (l *limits) get(key string) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d, ok := l.all[key]
	return d, ok
}

func (l *limits) set(key string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[string]time.Duration{}
	}
	if _, ok := l.all[key]; !ok {
		if len(l.old) >= maxLimits {
			delete(l.all, l.old[0])
			l.old = l.old[1:]
		}
		l.old = append(l.old, key)
	}
	l.all[key] = d
}

func (b *box) limitKey(session string) string { return b.id + "\x00" + session }

// limit gives the commands of a session a time, in milliseconds; 0 is none.
func (b *box) limit(ctx context.Context, session string, ms float64) error {
	d, err := timeout(ms)
	if err != nil || d == 0 { // a new session has none
		return err
	}
	if err := b.undo(ctx, session, fmt.Sprintf("%s=%d", limitVariable, d.Milliseconds())); err != nil {
		return err
	}
	b.limits.set(b.limitKey(session), d)
	return nil
}

// patience is how long a session's commands may take that do not say; 0 is for ever.
func (b *box) patience(ctx context.Context, session string) (time.Duration, error) {
	if d, ok := b.limits.get(b.limitKey(session)); ok {
		return d, nil
	}
	events, err := b.inSession(ctx, session, sandbox.Command{Shell: `builtin printf %s "${` + limitVariable + `-}"`, Timeout: undoTime, Lossless: true})
	if err != nil {
		return 0, err
	}
	out, err := collect(events, maxState)
	if err != nil {
		return 0, err
	}
	ms, err := strconv.ParseInt(string(out.stdout), 10, 64)
	if err != nil || ms < 0 || ms > maxTimeout.Milliseconds() {
		ms = 0 // it has none, or its owner has changed it to what is none
	}
	d := time.Duration(ms) * time.Millisecond
	b.limits.set(b.limitKey(session), d)
	return d, nil
}
