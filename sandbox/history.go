package sandbox

import (
	"fmt"
	"time"
)

// Bounds on the history of what a sandbox uses.
const (
	HistoryAge = 24 * time.Hour // older samples are forgotten
	MinStep    = time.Second
)

// Sample is what a sandbox used over a stretch of time in which it ran.
type Sample struct {
	Time        time.Time `json:"time"`         // its end
	Seconds     float64   `json:"seconds"`      // how long it is
	CPUMilli    int64     `json:"cpu_milli"`    // thousandths of a core, on the mean
	MemoryBytes int64     `json:"memory_bytes"` // at its end, or the most of several that were joined
	DiskBytes   int64     `json:"disk_bytes"`   // of the writable layer, the same
}

// HistoryQuery selects samples.
type HistoryQuery struct {
	From time.Time     // zero means from the first
	To   time.Time     // zero means until now
	Step time.Duration // shorter samples are joined, up to this length; 0 leaves them
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (q *HistoryQuery) Check() error {
	const op = "check history query"
	if q.Step != 0 && (q.Step < MinStep || q.Step > HistoryAge) {
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("step is %v", q.Step), Hint: fmt.Sprintf("a step is %v to %v", MinStep, HistoryAge)}
	}
	if !q.To.IsZero() && !q.From.Before(q.To) {
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("the time from %v to %v has no length", q.From, q.To), Hint: "from must lie before to"}
	}
	return nil
}
