// Package audit keeps what sandboxes did towards the outside, in files beneath
// the data directory that no sandbox can reach.
//
// Entries are lines of JSON in numbered segments, only ever appended to. They are
// written by one goroutine behind a bounded queue: whoever tells of something
// never waits, and what did not fit is counted and told in its place.
package audit

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Config is what a Log is made of. Fields but Dir may be left out.
type Config struct {
	Dir      string        // made if missing; no other Log uses it
	Segment  int64         // bytes of one file; 0 means 8 MiB
	Keep     int64         // bytes of all files; 0 means 512 MiB
	KeepTime time.Duration // how long a file is kept after its last entry; 0 means 90 days
	Queue    int           // entries that may wait to be written; 0 means 8,192

	Now func() time.Time // nil means time.Now
}

// Log keeps the audit. All methods may be called at once from many goroutines.
type Log struct {
	config Config
	queue  chan sandbox.AuditEntry
	closed chan struct{}
	done   chan struct{}
	reads  chan struct{} // a place for each page being read

	mu      sync.Mutex
	waiting map[sandbox.ID]int   // entries in the queue
	dropped map[sandbox.ID]*loss // and those that found no place
	broken  error                // why the last write failed; nil when it did not

	at     sync.Mutex // guards what follows, and the segments' ends
	last   position   // the end of what is written
	sizes  map[int64]int64
	grown  chan struct{} // closed and renewed when there is more
	writer *writer
}

// loss is what is known of entries that were dropped.
type loss struct {
	account string
	since   time.Time
	count   int64
}

// maxLosers bounds the sandboxes whose losses are told apart.
const maxLosers = 4096

// parallelReads bounds the pages that are read at once: each may look through all
// files.
const parallelReads = 4

// Open takes up the log in its folder. A line that a crash has cut is removed.
func Open(c Config) (*Log, error) {
	if c.Segment == 0 {
		c.Segment = 8 << 20
	}
	if c.Keep == 0 {
		c.Keep = 512 << 20
	}
	if c.KeepTime == 0 {
		c.KeepTime = 90 * 24 * time.Hour
	}
	if c.Queue == 0 {
		c.Queue = 8192
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Segment < 0 || c.Keep < c.Segment || c.KeepTime < 0 || c.Queue < 0 {
		return nil, &sandbox.Error{Op: "open audit", Kind: sandbox.Invalid, Err: fmt.Errorf("segments of %d bytes, %d in all, for %v", c.Segment, c.Keep, c.KeepTime),
			Hint: fmt.Sprintf("keep %d bytes at least", c.Segment)}
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, &sandbox.Error{Op: "open audit", Kind: sandbox.Internal, Err: err}
	}
	l := &Log{
		config: c, queue: make(chan sandbox.AuditEntry, c.Queue), closed: make(chan struct{}), done: make(chan struct{}),
		reads: make(chan struct{}, parallelReads), waiting: map[sandbox.ID]int{}, dropped: map[sandbox.ID]*loss{}, grown: make(chan struct{}),
	}
	if err := l.openLast(); err != nil {
		return nil, &sandbox.Error{Op: "open audit", Kind: sandbox.Internal, Err: err}
	}
	go l.write()
	return l, nil
}

// Note adds an entry. It never waits: one that finds no place in the queue, or
// whose sandbox has taken its share of it, is counted.
func (l *Log) Note(e sandbox.AuditEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[e.Sandbox] < max(1, l.config.Queue/4) {
		select {
		case <-l.closed:
		case l.queue <- e:
			l.waiting[e.Sandbox]++
			return
		default:
		}
	}
	l.lose(e, 1)
}

// lose counts entries that were not written. The caller holds l.mu.
func (l *Log) lose(e sandbox.AuditEntry, count int64) {
	id := e.Sandbox
	if l.dropped[id] == nil && len(l.dropped) >= maxLosers {
		id, e.Account = "", ""
	}
	if l.dropped[id] == nil {
		l.dropped[id] = &loss{account: e.Account, since: l.config.Now()}
	}
	l.dropped[id].count += count
}

// Lost is how many entries wait to be told of as dropped, and why the last write
// failed, if it did.
func (l *Log) Lost() (count int64, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.dropped {
		count += d.count
	}
	return count, l.broken
}

// Grown returns a channel that is closed when there is more to read than at the
// time of the call.
func (l *Log) Grown() <-chan struct{} {
	l.at.Lock()
	defer l.at.Unlock()
	return l.grown
}

// Close writes what waits and ends the log.
func (l *Log) Close() error {
	l.mu.Lock()
	select {
	case <-l.closed:
		l.mu.Unlock()
		return nil
	default:
	}
	close(l.closed)
	l.mu.Unlock()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken != nil {
		return &sandbox.Error{Op: "close audit", Kind: sandbox.Internal, Err: l.broken}
	}
	return nil
}

// turn waits for a place to read.
func (l *Log) turn(ctx context.Context) (leave func(), err error) {
	select {
	case l.reads <- struct{}{}:
		return func() { <-l.reads }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
