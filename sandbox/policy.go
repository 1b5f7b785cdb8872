package sandbox

import (
	"fmt"
	"slices"
	"time"
)

// Action is what a policy does to a sandbox when its time has come.
type Action string

const (
	ActPause  Action = "pause"  // keep all, use no memory
	ActStop   Action = "stop"   // keep the disk alone
	ActRemove Action = "remove" // keep nothing
)

// Activity is something that keeps a sandbox from being idle.
type Activity string

const (
	ActivityExec       Activity = "exec"       // a process whose caller waits for it: started without detach
	ActivityStream     Activity = "stream"     // an attached output, input, terminal or file body
	ActivityConnection Activity = "connection" // an open connection to a port or through SSH
	ActivityCPU        Activity = "cpu"        // more processor time than Idle.CPUMilli since the last look
)

// Activities lists every activity.
func Activities() []Activity {
	return []Activity{ActivityExec, ActivityStream, ActivityConnection, ActivityCPU}
}

// DefaultIdleCPU is the processor use, in thousandths of a core, up to which a
// sandbox counts as idle.
const DefaultIdleCPU = 50

// MaxTimer bounds every timer of a policy: 100 years.
const MaxTimer = 100 * 365 * 24 * 60 * 60

// Idle says when a running sandbox is idle, and what happens then.
//
// It is idle once nothing of the following has been there for TimeoutSeconds: a
// call that needs its machine, a keep-alive, and each Activity that Ignore does
// not name. A new call never shortens the time that is left.
type Idle struct {
	TimeoutSeconds int64      `json:"timeout_seconds"`     // 0: never idle
	Action         Action     `json:"action,omitempty"`    // "" means pause
	Ignore         []Activity `json:"ignore,omitempty"`    // what does not count
	CPUMilli       int64      `json:"cpu_milli,omitempty"` // 0 means DefaultIdleCPU
}

// Lifetime ends a sandbox whether it is idle or not.
//
// For the action remove the time counts from the creation, in every state; for
// pause and stop, and with Running, from the moment it last began to run, and
// only while it does.
type Lifetime struct {
	Seconds int64  `json:"seconds"`           // 0: no end
	Action  Action `json:"action,omitempty"`  // "" means remove
	Running bool   `json:"running,omitempty"` // one that is put aside has no end
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (p *Idle) Check() error {
	if p == nil {
		return nil
	}
	if err := checkTimer("idle timeout", p.TimeoutSeconds, p.Action); err != nil {
		return err
	}
	if p.CPUMilli < 0 || p.CPUMilli > 256_000 {
		return Errorf("check idle policy", Invalid, "cpu_milli is %d, 0 to 256000 are taken", p.CPUMilli)
	}
	for i, a := range p.Ignore {
		if !slices.Contains(Activities(), a) || slices.Contains(p.Ignore[:i], a) {
			return &Error{Op: "check idle policy", Kind: Invalid, Err: fmt.Errorf("%.40q is not an activity, or comes twice", a),
				Hint: fmt.Sprintf("the activities are %q", Activities())}
		}
	}
	return nil
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (p *Lifetime) Check() error {
	if p == nil {
		return nil
	}
	return checkTimer("lifetime", p.Seconds, p.Action)
}

func checkTimer(what string, seconds int64, a Action) error {
	if seconds < 0 || seconds > MaxTimer {
		return &Error{Op: "check " + what, Kind: Invalid, Err: fmt.Errorf("it is %d seconds", seconds),
			Hint: fmt.Sprintf("it takes 1 to %d seconds; 0 means never", MaxTimer)}
	}
	if a != "" && a != ActPause && a != ActStop && a != ActRemove {
		return &Error{Op: "check " + what, Kind: Invalid, Err: fmt.Errorf("%.40q is not an action", a),
			Hint: "the actions are pause, stop and remove"}
	}
	return nil
}

// Timeout is how long it takes to become idle, or 0.
func (p *Idle) Timeout() time.Duration {
	if p == nil {
		return 0
	}
	return time.Duration(p.TimeoutSeconds) * time.Second
}

// Then is the action, its default filled in.
func (p *Idle) Then() Action { return orAction(p.Action, ActPause) }

// Counts reports whether an activity keeps the sandbox from being idle.
func (p *Idle) Counts(a Activity) bool { return !slices.Contains(p.Ignore, a) }

// Threshold is the processor use that counts, in thousandths of a core.
func (p *Idle) Threshold() int64 {
	if p.CPUMilli == 0 {
		return DefaultIdleCPU
	}
	return p.CPUMilli
}

// Length is the lifetime, or 0.
func (p *Lifetime) Length() time.Duration {
	if p == nil {
		return 0
	}
	return time.Duration(p.Seconds) * time.Second
}

// Then is the action, its default filled in.
func (p *Lifetime) Then() Action { return orAction(p.Action, ActRemove) }

// Ends is when the sandbox's lifetime is over, as things are; zero means not by
// itself.
func (s *Sandbox) Ends() time.Time {
	length := s.Lifetime.Length()
	switch {
	case length == 0:
		return time.Time{}
	case s.Lifetime.Then() == ActRemove && !s.Lifetime.Running:
		return s.Created.Add(length)
	case s.State == Running:
		return s.Started.Add(length)
	}
	return time.Time{}
}

func orAction(a, fallback Action) Action {
	if a == "" {
		return fallback
	}
	return a
}
