package sandbox

import "slices"

// State is where a sandbox stands in its life.
type State string

const (
	Starting State = "starting" // being made; not usable yet
	Running  State = "running"  // its guest answers
	Paused   State = "paused"   // memory, processes and disk kept; no memory used
	Stopped  State = "stopped"  // disk kept; nothing runs
	Failed   State = "failed"   // ended by a fault; the record says which
	Deleted  State = "deleted"  // gone; the last state a watcher sees
)

// transitions is the one table of what may follow what. A state may always be
// recorded again: transitions are idempotent.
var transitions = map[State][]State{
	Starting: {Running, Failed, Deleted},
	Running:  {Paused, Stopped, Failed, Deleted},
	Paused:   {Running, Stopped, Failed, Deleted},
	Stopped:  {Starting, Running, Paused, Failed, Deleted}, // paused: taken back to a snapshot with memory
	Failed:   {Deleted},
	Deleted:  {},
}

// States lists every state, in the order of a sandbox's life.
func States() []State {
	return []State{Starting, Running, Paused, Stopped, Failed, Deleted}
}

// Valid reports whether s is one of the states above.
func (s State) Valid() bool { _, ok := transitions[s]; return ok }

// CanBecome reports whether a sandbox in state s may go to state next.
func (s State) CanBecome(next State) bool {
	return s.Valid() && (s == next || slices.Contains(transitions[s], next))
}
