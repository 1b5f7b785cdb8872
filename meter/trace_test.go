package meter

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// TestTraceIsBounded adds samples for three days: the newest are as they were taken,
// the older ones longer, and together they tell of the last day without a gap.
func TestTraceIsBounded(t *testing.T) {
	var tr trace
	const step = 30_000
	at := int64(1_000_000_000)
	for range 3 * 24 * 120 {
		at += step
		tr.add(point{at, step, 15_000_000_000, 100 << 20, 5 << 20})
		if len(tr.points) > maxPoints {
			t.Fatalf("%d points", len(tr.points))
		}
	}
	if last := tr.points[len(tr.points)-1]; last.span != step || last.at != at {
		t.Errorf("the newest is %+v", last)
	}
	var span int64
	for i, p := range tr.points {
		span += p.span
		if i > 0 && !p.follows(tr.points[i-1]) {
			t.Fatalf("%+v does not follow %+v", p, tr.points[i-1])
		}
		if p.sample().CPUMilli != 500 || p.memory != 100<<20 {
			t.Fatalf("%+v", p.sample())
		}
	}
	if age := time.Duration(at-tr.points[0].at) * time.Millisecond; age > sandbox.HistoryAge || span < 12*3600*1000 {
		t.Errorf("the oldest ended %v ago, all are %v long", age, time.Duration(span)*time.Millisecond)
	}
	got, err := parseTrace(tr.marshal())
	if err != nil || len(got) != len(tr.points) || got[0] != tr.points[0] || got[len(got)-1] != tr.points[len(tr.points)-1] {
		t.Errorf("read back: %d of %d, %v", len(got), len(tr.points), err)
	}
}

// TestTraceWithGaps: times in which it did not run are in no sample, and what is too
// short is joined to its neighbour.
func TestTraceWithGaps(t *testing.T) {
	var tr trace
	tr.add(point{10_000, 5000, 1e9, 1, 1})
	tr.add(point{11_000, 1000, 1e9, 9, 1}) // somebody asked
	tr.add(point{90_000, 5000, 1e9, 2, 1})
	tr.add(point{90_000, 0, 1e9, 2, 1})
	if len(tr.points) != 2 || tr.points[0] != (point{11_000, 6000, 2e9, 9, 1}) {
		t.Errorf("%+v", tr.points)
	}
	for i := range int64(10 * maxPoints) { // none can be joined
		tr.add(point{100_000 + i*20_000, 5000, 1, 1, 1})
	}
	if len(tr.points) > maxPoints {
		t.Errorf("%d points", len(tr.points))
	}
}

func FuzzParseTrace(f *testing.F) {
	tr := trace{points: []point{{10_000, 5000, 1e9, 1, 1}, {20_000, 10_000, 2e9, 5, 6}}}
	b := tr.marshal()
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add([]byte{traceFormat})
	f.Add([]byte{9, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		points, err := parseTrace(b)
		if err != nil {
			return
		}
		if len(points) > maxPoints {
			t.Fatalf("%d points", len(points))
		}
		again, err := parseTrace((&trace{points: points}).marshal())
		if err != nil || len(again) != len(points) {
			t.Fatalf("%d of %d, %v", len(again), len(points), err)
		}
	})
}
