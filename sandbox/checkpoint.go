package sandbox

import "fmt"

// MinCheckpoint is the least time between two checkpoints, in seconds.
const MinCheckpoint = 10

// Checkpoint has a sandbox that runs kept now and then, as a snapshot of which the
// newest stays. When its machine is lost, with its host or alone, it goes on from
// there.
type Checkpoint struct {
	EverySeconds int64 `json:"every_seconds"`  // 0: never
	Keep         Keep  `json:"keep,omitempty"` // "" means memory
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (c *Checkpoint) Check() error {
	const op = "check checkpoint policy"
	if c == nil {
		return nil
	}
	if c.EverySeconds != 0 && (c.EverySeconds < MinCheckpoint || c.EverySeconds > MaxTimer) {
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("it is every %d seconds", c.EverySeconds),
			Hint: fmt.Sprintf("it takes %d to %d seconds; 0 means never", MinCheckpoint, MaxTimer)}
	}
	if c.Keep != "" && c.Keep != KeepMemory && c.Keep != KeepDisk {
		return &Error{Op: op, Kind: Invalid, Err: fmt.Errorf("%.40q cannot be kept", c.Keep), Hint: "keep takes memory, which includes the disk, or disk"}
	}
	return nil
}

// Every is the time between two checkpoints in seconds, or 0.
func (c *Checkpoint) Every() int64 {
	if c == nil {
		return 0
	}
	return c.EverySeconds
}
