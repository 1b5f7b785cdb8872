// Package meter keeps the sums of what sandboxes use, hour by hour, in a record
// store.
//
// It is told of every change of a sandbox's record and, now and then, what its
// machine's counters say. What is held over time (memory, disk) follows from
// what is held and since when, so an idle sandbox costs a read a half minute and
// a write a minute. A counter is read again after a restart, so what a sandbox
// used meanwhile is not lost; a change of state is written in the transaction of
// the record itself.
//
// The records: live/ID holds a sandbox's gauge, and gone/ID that of one that was
// removed; hour/ACCOUNT/HOUR/ID holds what it used in an hour that is over.
package meter

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

const (
	livePrefix = "meter/live/" // + id
	gonePrefix = "meter/gone/" // + id
	hourPrefix = "meter/hour/" // + account/hour, of 8 hex digits/id
	aliveKey   = "meter/alive" // milliseconds since 1970 of the last Flush
)

// Config is what a Book is made of. Its store outlives it.
type Config struct {
	Records record.Store
	Clock   func() time.Time // nil means time.Now
	Prices  Prices
	Keep    time.Duration // how long the hours, and removed sandboxes, are kept; 0 means 400 days
}

// Book keeps the sums. All methods may be called at once from many goroutines.
type Book struct {
	records record.Store
	now     func() time.Time
	rates   rates
	keep    time.Duration
	alive   int64 // up to when the process before is known to have lived, in milliseconds

	flushing sync.Mutex // over Flush: two must not write at once
	pruned   time.Time  // when old records were last removed

	mu    sync.Mutex
	boxes map[sandbox.ID]*box
	gone  sums // of all that were removed
}

// box is one sandbox that has not been removed, or not on record yet.
type box struct {
	gauge
	known   bool          // a change was told by this process
	looked  time.Time     // when the counters were last read; zero: not since it began to run
	calm    bool          // it used next to nothing between the last two reads
	out     int64         // the link's counter at the last read
	dirty   bool          // must be written with the next Flush
	written int64         // when it last was, in milliseconds
	unsaved time.Duration // of CPU, since then
	trace   *trace        // not what a copy changes
}

// Open reads the sums that an earlier process left.
func Open(ctx context.Context, c Config) (*Book, error) {
	const op = "open meter"
	b := &Book{records: c.Records, now: c.Clock, keep: c.Keep, boxes: map[sandbox.ID]*box{}}
	if b.now == nil {
		b.now = time.Now
	}
	if b.keep == 0 {
		b.keep = 400 * 24 * time.Hour
	}
	var err error
	if b.rates, err = c.Prices.rates(); err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	entry, err := b.records.Get(ctx, aliveKey)
	if err == nil {
		err = json.Unmarshal(entry.Value, &b.alive)
	} else if sandbox.KindOf(err) == sandbox.NotFound {
		err = nil
	}
	if err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	err = b.each(ctx, livePrefix, func(g *gauge) { b.boxes[g.ID] = &box{gauge: *g, trace: new(trace)} })
	if err == nil {
		err = b.openTraces(ctx)
	}
	if err == nil {
		err = b.each(ctx, gonePrefix, b.bury)
	}
	if err != nil {
		return nil, &sandbox.Error{Op: op, Err: err}
	}
	return b, nil
}

// bury adds a sandbox that was removed to the total of those.
func (b *Book) bury(g *gauge) {
	b.gone.join(g.Before)
	b.gone.join(g.Part.sums)
}

// each calls f for every gauge under a prefix.
func (b *Book) each(ctx context.Context, prefix string, f func(*gauge)) error {
	return record.Each(ctx, b.records, prefix, "", func(entry record.Entry) error {
		g := new(gauge)
		if err := json.Unmarshal(entry.Value, g); err != nil {
			return sandbox.Errorf("decode "+entry.Key, sandbox.Internal, "%w", err)
		}
		f(g)
		return nil
	})
}

// Change says what is to be written in the transaction in which a sandbox's
// record becomes s, whose machine began to run at ran, with so much on its counter
// of processor time. Once that has succeeded, done is to be called.
func (b *Book) Change(s sandbox.Sandbox, ran time.Time, counted time.Duration) (ops []record.Op, done func(), err error) {
	return b.change(s, ran, counted, false)
}

// Volume says what is to be written in the transaction that makes or removes a volume,
// as Change does for a sandbox.
func (b *Book) Volume(v sandbox.Volume, removed bool) (ops []record.Op, done func(), err error) {
	s := sandbox.Sandbox{ID: v.ID, Account: v.Account, Name: v.Name, State: sandbox.Stopped}
	if removed {
		s.State = sandbox.Deleted
	}
	return b.change(s, time.Time{}, 0, true)
}

func (b *Book) change(s sandbox.Sandbox, ran time.Time, counted time.Duration, volume bool) (ops []record.Op, done func(), err error) {
	now := b.now().UnixMilli()
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.changed(&s, ran, counted, now)
	next.Volume = volume
	if ops, err = next.ops(); err != nil {
		return nil, nil, err
	}
	return ops, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		one := b.changed(&s, ran, counted, now) // what was read meanwhile counts too
		one.Volume, one.dirty = volume, true
		b.boxes[s.ID] = one
	}, nil
}

// changed returns the box as it is after a change. The caller holds b.mu.
func (b *Book) changed(s *sandbox.Sandbox, ran time.Time, counted time.Duration, now int64) *box {
	old := b.boxes[s.ID]
	if old == nil {
		old = &box{gauge: gauge{ID: s.ID, At: now}, known: true, trace: new(trace)}
		old.Part.Hour = now / hour
	}
	one := *old
	one.gauge = *old.clone()
	if !one.known && (s.State != one.State || one.base(s, ran) != one.Base) {
		// It changed while nobody looked: what it was, it was as long as the
		// process before is known to have lived.
		one.advance(max(one.At, min(b.alive, now)), 0, one.Used, one.Disk, nil)
		one.At = now
	}
	if one.State != s.State || one.base(s, ran) != one.Base {
		one.looked, one.calm = time.Time{}, false
	}
	one.known = true
	one.move(now, s, ran, counted)
	return &one
}

func (g *gauge) base(s *sandbox.Sandbox, ran time.Time) int64 {
	if s.State == sandbox.Running {
		return ran.UnixNano()
	}
	return g.Base
}

// ops writes the gauge, under the name that it has now.
func (g *gauge) ops() ([]record.Op, error) {
	key, other := livePrefix+string(g.ID), gonePrefix+string(g.ID)
	trace := record.Op{Key: tracePrefix + string(g.ID), Delete: true}
	if !g.Ended.IsZero() {
		key, other = other, key
		if g.Part.empty() && g.Before.empty() { // it has never run
			return []record.Op{{Key: key, Delete: true}, {Key: other, Delete: true}, trace}, nil
		}
	}
	value, err := json.Marshal(g)
	if err != nil {
		return nil, sandbox.Errorf("encode sums", sandbox.Internal, "%w", err)
	}
	ops := []record.Op{{Key: key, Value: value}}
	if !g.Ended.IsZero() {
		ops = append(ops, record.Op{Key: other, Delete: true}, trace)
	}
	return ops, nil
}

// Read takes in what the machine of a sandbox said that began to run at ran.
// egress is what its link has sent since this process has it, or nil if nobody
// counts that. What is said of another machine than the present one is left out.
func (b *Book) Read(id sandbox.ID, ran time.Time, u driver.Usage, egress *int64) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.boxes[id]
	if one == nil || one.State != sandbox.Running || one.Base != ran.UnixNano() {
		return
	}
	var out *int64
	if egress != nil {
		n := *egress - one.out
		if n < 0 {
			n = *egress
		}
		out, one.out = &n, *egress
	}
	before, at := one.CPU, one.At
	one.read(now.UnixMilli(), u, one.looked.IsZero(), out)
	used := one.CPU - before
	if used < 0 {
		used = one.CPU
	}
	one.unsaved += time.Duration(used)
	one.trace.add(point{one.At, one.At - at, used, u.MemoryBytes, u.DiskBytes})
	one.calm = !one.looked.IsZero() && used < (one.At-at)*int64(time.Millisecond)/100
	one.looked = now
}

// Kept takes in how many bytes the files of a sandbox occupy that is put aside.
func (b *Book) Kept(id sandbox.ID, bytes int64) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.boxes[id]
	if one == nil || one.State != sandbox.Paused && one.State != sandbox.Stopped {
		return
	}
	one.advance(now.UnixMilli(), 0, 0, one.Disk, nil)
	one.Disk, one.looked, one.dirty = bytes, now, true
}

// Bounds on how often the counters of a sandbox are to be read.
const (
	busyRead = 5 * time.Second
	calmRead = 30 * time.Second // of one that uses less than a hundredth of a core
)

// Due lists the sandboxes whose counters are to be read now, and those that are
// put aside whose files are to be measured.
func (b *Book) Due() (running, aside []sandbox.ID) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, one := range b.boxes {
		switch one.State {
		case sandbox.Running:
			step := busyRead
			if one.calm {
				step = calmRead
			}
			if now.Sub(one.looked) >= step {
				running = append(running, id)
			}
		case sandbox.Paused, sandbox.Stopped:
			if one.looked.IsZero() && !one.Volume {
				aside = append(aside, id)
			}
		}
	}
	return running, aside
}

// DueVolumes lists the volumes that are to be measured now.
func (b *Book) DueVolumes() (due []sandbox.ID) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, one := range b.boxes {
		if one.Volume && one.Ended.IsZero() && now.Sub(one.looked) >= calmRead {
			due = append(due, id)
		}
	}
	return due
}

// Began is when the present machine of a sandbox began to run, zero if none does.
func (b *Book) Began(id sandbox.ID) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.boxes[id]
	if one == nil || one.State != sandbox.Running {
		return time.Time{}
	}
	return time.Unix(0, one.Base)
}

// Retain ends the sums of every sandbox that keep does not know: they were
// removed while nobody looked.
func (b *Book) Retain(keep func(sandbox.ID) bool) {
	now := b.now().UnixMilli()
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, one := range b.boxes {
		if one.known || keep(id) {
			continue
		}
		s := sandbox.Sandbox{ID: id, Account: one.Account, Name: one.Name, State: sandbox.Deleted}
		gone := b.changed(&s, time.Time{}, 0, now)
		gone.Volume, gone.dirty = one.Volume, true
		b.boxes[id] = gone
	}
}

// CPU is the processor time that a sandbox has used in its life, as of the last
// read.
func (b *Book) CPU(id sandbox.ID) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	one := b.boxes[id]
	if one == nil {
		return 0
	}
	return time.Duration(one.Before.CPU + one.Part.CPU)
}

// hourKey is of what a sandbox used in an hour.
func hourKey(account string, h int64, id sandbox.ID) string {
	return hourFrom(account, h) + string(id)
}

func hourFrom(account string, h int64) string {
	return fmt.Sprintf("%s%s/%08x/", hourPrefix, account, h)
}
