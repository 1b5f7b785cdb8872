package sandbox

import (
	"fmt"
	"time"
)

// MaxForks bounds the children of one fork.
const MaxForks = 64

// ForkRequest asks for copies of a sandbox. What is nil is as with the sandbox
// that is copied.
type ForkRequest struct {
	Count    int                `json:"count"`              // of children, 1 to MaxForks
	Names    []string           `json:"names,omitempty"`    // of the first children, in their order
	Metadata map[string]*string `json:"metadata,omitempty"` // merged; nil removes a key
	Tags     []string           `json:"tags,omitempty"`
	Idle     *Idle              `json:"idle,omitempty"`
	Lifetime *Lifetime          `json:"lifetime,omitempty"`
	Wake     *bool              `json:"wake,omitempty"`
}

// Check reports an error of kind Invalid for the first thing that is wrong.
func (r *ForkRequest) Check() error {
	if r.Count < 1 || r.Count > MaxForks {
		return &Error{Op: "check fork", Kind: Invalid, Err: fmt.Errorf("count is %d", r.Count),
			Hint: fmt.Sprintf("count takes 1 to %d", MaxForks)}
	}
	if len(r.Names) > r.Count {
		return &Error{Op: "check fork", Kind: Invalid, Err: fmt.Errorf("%d names for %d children", len(r.Names), r.Count),
			Hint: "give at most one name a child"}
	}
	seen := map[string]bool{}
	for _, n := range r.Names {
		if n == "" {
			continue
		}
		if seen[n] {
			return &Error{Op: "check fork", Kind: Invalid, Err: fmt.Errorf("the name %.80q comes twice", n), Hint: "give each child another name"}
		}
		seen[n] = true
	}
	as := CreateRequest{Tags: r.Tags, Idle: r.Idle, Lifetime: r.Lifetime}
	for n := range seen {
		as.Name = n
		if err := as.Check(); err != nil {
			return err
		}
	}
	return as.Check()
}

// Forked is one child of a fork: one of the two is set.
type Forked struct {
	Sandbox *Sandbox
	Err     error
}

// Fork is what became of a fork. There is one child at least.
type Fork struct {
	Children []Forked
	Pause    time.Duration // how long the sandbox stood still
	Stages   []ForkStage   // where the time went, in the order of their beginnings
}

// ForkStage is one step of a fork.
type ForkStage struct {
	Name  string
	Start time.Duration // after the beginning
	Took  time.Duration
}
