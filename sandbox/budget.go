package sandbox

import "fmt"

// MaxBudget bounds a budget, in milliseconds of CPU time: a thousand cores for a
// hundred years.
const MaxBudget = 1000 * MaxTimer * 1000

// Budget is the processor time that a sandbox may use in all its life. Once it is
// used up the sandbox is put aside, and does not wake before the budget is raised.
type Budget struct {
	CPUMillis int64  `json:"cpu_ms"`           // milliseconds; 0: no bound
	Action    Action `json:"action,omitempty"` // pause or stop; "" means pause
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (b *Budget) Check() error {
	const op = "check budget"
	if b == nil {
		return nil
	}
	if b.CPUMillis < 0 || b.CPUMillis > MaxBudget {
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("it is %d milliseconds of CPU time", b.CPUMillis),
			Hint: fmt.Sprintf("it takes 1 to %d; 0 means no bound", int64(MaxBudget))}
	}
	if b.Action != "" && b.Action != ActPause && b.Action != ActStop {
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("%.40q is not an action of a budget", b.Action), Hint: "the actions are pause and stop"}
	}
	return nil
}

// Bound is the processor time in milliseconds, or 0 for none.
func (b *Budget) Bound() int64 {
	if b == nil {
		return 0
	}
	return b.CPUMillis
}

// Then is the action, its default filled in.
func (b *Budget) Then() Action { return orAction(b.Action, ActPause) }
