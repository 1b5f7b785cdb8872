package meter

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// tracePrefix + id: the newest samples of a sandbox, for people who look at its past.
// No sum is made of them.
const tracePrefix = "meter/trace/"

// Bounds on the samples of one sandbox.
const (
	maxPoints   = 240
	minPoint    = 4 * time.Second // shorter ones are joined
	traceWrite  = 5 * time.Minute // between two writes, and so what a crash costs of them
	traceFormat = 1
)

// point is a stretch of time: its end and length in milliseconds, the processor time
// in it in nanoseconds, and what was held at its end, in bytes.
type point struct{ at, span, cpu, memory, disk int64 }

// follows reports whether p begins where q ends.
func (p point) follows(q point) bool { return p.at-p.span <= q.at+1 && p.at >= q.at }

// join returns both as one, if p follows q.
func (p point) join(q point) point {
	return point{p.at, p.span + q.span, p.cpu + q.cpu, max(p.memory, q.memory), max(p.disk, q.disk)}
}

// trace is the samples of a sandbox, the oldest first. The older they are the longer
// they become: when there are too many, neighbours among the older half are joined.
type trace struct {
	points  []point
	written int64 // when, in milliseconds
	fresh   bool  // there is something to write
}

func (t *trace) add(p point) {
	if p.span <= 0 || p.cpu < 0 {
		return
	}
	t.fresh = true
	for len(t.points) > 0 && t.points[0].at < p.at-sandbox.HistoryAge.Milliseconds() {
		t.points = t.points[1:]
	}
	if n := len(t.points); n > 0 && p.follows(t.points[n-1]) && min(p.span, t.points[n-1].span) < minPoint.Milliseconds() {
		t.points[n-1] = p.join(t.points[n-1])
		return
	}
	if len(t.points) >= maxPoints {
		t.thin()
	}
	t.points = append(t.points, p)
}

// thin makes room, if need be by forgetting what cannot be joined.
func (t *trace) thin() {
	half := len(t.points) / 2
	kept := make([]point, 0, maxPoints)
	for i := 0; i < half; i++ {
		p := t.points[i]
		if i+1 < half && t.points[i+1].follows(p) {
			p = t.points[i+1].join(p)
			i++
		}
		kept = append(kept, p)
	}
	kept = append(kept, t.points[half:]...)
	if n := len(kept) - maxPoints*7/8; n > 0 {
		kept = kept[n:]
	}
	t.points = kept
}

// marshal writes the points as differences, in few bytes.
func (t *trace) marshal() []byte {
	b := []byte{traceFormat}
	last := int64(0)
	for _, p := range t.points {
		for _, v := range []int64{p.at - last, p.span, p.cpu, p.memory, p.disk} {
			b = binary.AppendVarint(b, v)
		}
		last = p.at
	}
	return b
}

var errTrace = errors.New("the samples cannot be read")

// parseTrace reads what marshal has written.
func parseTrace(b []byte) (points []point, err error) {
	if len(b) == 0 || b[0] != traceFormat {
		return nil, errTrace
	}
	b = b[1:]
	last := int64(0)
	for len(b) > 0 && len(points) < maxPoints {
		var v [5]int64
		for i := range v {
			var n int
			if v[i], n = binary.Varint(b); n <= 0 || v[i] < 0 {
				return nil, errTrace
			}
			b = b[n:]
		}
		last += v[0]
		if last < 0 {
			return nil, errTrace
		}
		points = append(points, point{last, v[1], v[2], v[3], v[4]})
	}
	if len(b) > 0 {
		return nil, errTrace
	}
	return points, nil
}

// openTraces reads the samples that an earlier process left. Those that cannot be
// read are forgotten: nobody is charged by them.
func (b *Book) openTraces(ctx context.Context) error {
	return record.Each(ctx, b.records, tracePrefix, "", func(e record.Entry) error {
		one := b.boxes[sandbox.ID(e.Key[len(tracePrefix):])]
		if one == nil {
			return nil
		}
		if points, err := parseTrace(e.Value); err == nil {
			one.trace.points = points
		}
		return nil
	})
}

// flushTraces writes what is due, or all that is new. What could not be written is
// due again with the next flush.
func (b *Book) flushTraces(ctx context.Context, batch *batch, now int64, all bool) error {
	for _, due := range b.dueTraces(now, all) {
		if err := batch.add(ctx, due.settle, due.op); err != nil {
			return err
		}
	}
	return nil
}

// dueTrace is samples on their way to the store.
type dueTrace struct {
	op     record.Op
	settle func(error)
}

func (b *Book) dueTraces(now int64, all bool) (due []dueTrace) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, one := range b.boxes {
		t := one.trace
		if !t.fresh || !one.Ended.IsZero() || !all && now-t.written < traceWrite.Milliseconds() {
			continue
		}
		before := t.written
		t.fresh, t.written = false, now
		due = append(due, dueTrace{record.Op{Key: tracePrefix + string(id), Value: t.marshal()}, func(err error) {
			if err == nil {
				return
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			t.fresh, t.written = true, before
		}})
	}
	return due
}

// History returns the samples of a sandbox, the oldest first.
func (b *Book) History(id sandbox.ID, q sandbox.HistoryQuery) []sandbox.Sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []sandbox.Sample{}
	one := b.boxes[id]
	if one == nil {
		return out
	}
	var open point
	give := func() {
		if open.span > 0 {
			out = append(out, open.sample())
		}
	}
	for _, p := range one.trace.points {
		at := time.UnixMilli(p.at)
		if at.Before(q.From) || !q.To.IsZero() && at.After(q.To) {
			continue
		}
		if open.span > 0 && p.follows(open) && open.span+p.span <= q.Step.Milliseconds() {
			open = p.join(open)
			continue
		}
		give()
		open = p
	}
	give()
	return out
}

func (p point) sample() sandbox.Sample {
	return sandbox.Sample{Time: time.UnixMilli(p.at).UTC(), Seconds: float64(p.span) / 1000,
		CPUMilli: p.cpu / (p.span * 1000), MemoryBytes: p.memory, DiskBytes: p.disk}
}
