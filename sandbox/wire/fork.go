package wire

import (
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// Fork is the answer to a fork.
type Fork struct {
	Children []Forked    `json:"children"`         // in the order of the request
	PauseMS  float64     `json:"pause_ms"`         // how long the sandbox stood still
	Stages   []ForkStage `json:"stages,omitempty"` // where the time went
}

// Forked is one child: the sandbox, or why there is none.
type Forked struct {
	Sandbox *sandbox.Sandbox `json:"sandbox,omitempty"`
	Error   *ErrorDetail     `json:"error,omitempty"`
}

// ForkStage is one step of a fork.
type ForkStage struct {
	Name    string  `json:"name"`
	StartMS float64 `json:"start_ms"` // after the beginning
	TookMS  float64 `json:"took_ms"`
}

// ForkOf writes a fork down; detail does so with an error.
func ForkOf(f sandbox.Fork, detail func(error) ErrorDetail) Fork {
	out := Fork{PauseMS: milliseconds(f.Pause)}
	for _, c := range f.Children {
		if c.Err == nil {
			out.Children = append(out.Children, Forked{Sandbox: c.Sandbox})
			continue
		}
		d := detail(c.Err)
		out.Children = append(out.Children, Forked{Error: &d})
	}
	for _, s := range f.Stages {
		out.Stages = append(out.Stages, ForkStage{Name: s.Name, StartMS: milliseconds(s.Start), TookMS: milliseconds(s.Took)})
	}
	return out
}

// Fork undoes ForkOf. A child with neither is an error of its own.
func (f Fork) Fork() sandbox.Fork {
	out := sandbox.Fork{Pause: duration(f.PauseMS)}
	for _, c := range f.Children {
		switch {
		case c.Error != nil:
			out.Children = append(out.Children, sandbox.Forked{Err: Error{Error: *c.Error}.Err()})
		case c.Sandbox != nil:
			out.Children = append(out.Children, sandbox.Forked{Sandbox: c.Sandbox})
		default:
			out.Children = append(out.Children, sandbox.Forked{Err: sandbox.Errorf("read answer", sandbox.Internal, "a child is neither there nor failed")})
		}
	}
	for _, s := range f.Stages {
		out.Stages = append(out.Stages, sandbox.ForkStage{Name: s.Name, Start: duration(s.StartMS), Took: duration(s.TookMS)})
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
func duration(ms float64) time.Duration    { return time.Duration(ms * float64(time.Millisecond)) }
