package sandbox

import (
	"fmt"
	"time"
)

// Consumption is what was used over some time, in whole numbers: sums of it are
// exact.
type Consumption struct {
	CPUMillis            int64  `json:"cpu_ms"`                  // milliseconds of CPU time, rounded down
	MemoryKiBSeconds     int64  `json:"memory_kib_seconds"`      // provisioned, while it ran; 1,048,576 are a GiB-second
	MemoryUsedKiBSeconds int64  `json:"memory_used_kib_seconds"` // in use, while it ran
	DiskKBSeconds        int64  `json:"disk_kb_seconds"`         // of 1,000 bytes, as stored on the host, running or not
	EgressBytes          *int64 `json:"egress_bytes,omitempty"`  // nil: not measured
}

// Cost is the price of a Consumption: decimal numbers of dollars, computed exactly
// and rounded, half up, to the ninth place.
type Cost struct {
	CPU    string `json:"cpu"`
	Memory string `json:"memory"` // of the provisioned
	Disk   string `json:"disk"`
	Egress string `json:"egress"`
	Total  string `json:"total"` // of the exact sum, so it may differ from the others' by the last place
}

// UsageQuery selects what to sum up. Times are rounded down to the hour.
type UsageQuery struct {
	Sandbox string    // id, of a removed one too, or name; "" means all
	Account string    // "" means the caller's, or for the operator all
	Since   time.Time // zero means from the first
	Until   time.Time // zero means until now
	By      UsageBy   // "" means BySandbox
	Limit   int       // of rows, the dearest first or the newest hours; 1 to 1000, 0 means 100
}

// UsageBy is what the rows of a report stand for.
type UsageBy string

const (
	BySandbox UsageBy = "sandbox"
	ByAccount UsageBy = "account"
	ByHour    UsageBy = "hour"
)

// Check reports an error of kind Invalid for the first thing that is wrong.
func (q *UsageQuery) Check() error {
	const op = "check usage query"
	if q.By != "" && q.By != BySandbox && q.By != ByAccount && q.By != ByHour {
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("rows by %.40q are not known", q.By), Hint: "by takes sandbox, account or hour"}
	}
	if q.Limit < 0 || q.Limit > MaxPage {
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("limit is %d", q.Limit),
			Hint: fmt.Sprintf("limit takes 1 to %d; leave it out for %d", MaxPage, DefaultPage)}
	}
	if !q.Until.IsZero() && !q.Since.Before(q.Until) {
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("the time from %v to %v has no length", q.Since, q.Until), Hint: "since must lie before until"}
	}
	return nil
}

// UsageReport sums up what was used.
type UsageReport struct {
	Since time.Time   `json:"since,omitzero"` // zero: from the first
	Until time.Time   `json:"until"`
	Total Consumption `json:"total"`
	Cost  Cost        `json:"cost"`
	Rows  []UsageRow  `json:"rows"`
	More  int         `json:"more,omitempty"` // rows that are left out; the total has them
}

// UsageRow is one sandbox, volume, account or hour of a report.
type UsageRow struct {
	Sandbox ID        `json:"sandbox,omitempty"`
	Volume  ID        `json:"volume,omitempty"` // it keeps its disk alone
	Name    string    `json:"name,omitempty"`   // of the sandbox or volume
	Account string    `json:"account,omitempty"`
	State   State     `json:"state,omitempty"` // of the sandbox; of a volume: deleted, or none
	Hour    time.Time `json:"hour,omitzero"`   // its begin

	Consumption
	Cost Cost `json:"cost"`
}
