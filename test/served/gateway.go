package served

import (
	"context"
	"errors"
	"sync"

	"github.com/berth-dev/berth/sandbox"
)

// Gateway remembers the policies in force and passes no traffic: the fake driver
// has none. It refuses a policy with a rule of the name "refused".
type Gateway struct {
	mu  sync.Mutex
	all map[sandbox.ID]sandbox.Policy
}

// Check implements the engine's gateway.
func (g *Gateway) Check(_ context.Context, s *sandbox.Sandbox) error {
	if s.Policy == nil {
		return nil
	}
	for _, r := range s.Policy.Allow {
		if r.Name == "refused" {
			return &sandbox.Error{Op: "check policy", Kind: sandbox.Forbidden, Err: errors.New("the operator has closed it"), Hint: "leave it out"}
		}
	}
	return nil
}

// Apply implements the engine's gateway.
func (g *Gateway) Apply(ctx context.Context, s *sandbox.Sandbox) error {
	if err := g.Check(ctx, s); err != nil {
		return err
	}
	p := sandbox.DefaultPolicy()
	if s.Policy != nil {
		p = *s.Policy
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = map[sandbox.ID]sandbox.Policy{}
	}
	g.all[s.ID] = p
	return nil
}

// Forget implements the engine's gateway.
func (g *Gateway) Forget(id sandbox.ID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.all, id)
}

// Of is the policy of a sandbox that is in force.
func (g *Gateway) Of(id sandbox.ID) (sandbox.Policy, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.all[id]
	return p, ok
}
