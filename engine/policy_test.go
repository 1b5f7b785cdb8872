package engine_test

import (
	"context"
	"reflect"
	"sync"
	"testing"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// keeper is a gateway that shows which policies are in force.
type keeper struct {
	mu   sync.Mutex
	all  map[sandbox.ID]sandbox.Policy
	fail error
}

func (k *keeper) Check(context.Context, *sandbox.Sandbox) error { return k.failing() }

func (k *keeper) failing() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.fail
}

func (k *keeper) set(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fail = err
}

func (k *keeper) Apply(_ context.Context, s *sandbox.Sandbox) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fail != nil {
		return k.fail
	}
	if k.all == nil {
		k.all = map[sandbox.ID]sandbox.Policy{}
	}
	k.all[s.ID] = sandbox.DefaultPolicy()
	if s.Policy != nil {
		k.all[s.ID] = *s.Policy
	}
	return nil
}

func (k *keeper) Forget(id sandbox.ID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, id)
}

func (k *keeper) want(t *testing.T, id sandbox.ID, want *sandbox.Policy) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	got, ok := k.all[id]
	switch {
	case want == nil && ok:
		t.Errorf("the policy %+v is in force, want none", got)
	case want != nil && (!ok || !reflect.DeepEqual(got, *want)):
		t.Errorf("the policy %+v is in force (%v), want %+v", got, ok, *want)
	}
}

func guarded(t *testing.T) (*house, *keeper) {
	t.Helper()
	k := &keeper{}
	return newHouse(t, func(c *engine.Config) { c.Gateway = k }), k
}

func only(domain string) *sandbox.Policy {
	return &sandbox.Policy{Profile: sandbox.ProfileAllow, Allow: []sandbox.Rule{{Domains: []string{domain}}}}
}

// TestPolicyComesBeforeTheMachine looks at what is in force when a machine is
// made, resumed and adopted.
func TestPolicyComesBeforeTheMachine(t *testing.T) {
	h, k := guarded(t)
	h.world.enter, h.world.leave = make(chan sandbox.ID), make(chan struct{})
	made := make(chan sandbox.Sandbox, 1)
	go func() {
		s, err := h.Create(operator(t), sandbox.CreateRequest{Policy: only("a.example")})
		if err != nil {
			t.Error(err)
		}
		made <- s
	}()
	k.want(t, <-h.world.enter, only("a.example"))
	h.world.enter = nil
	h.world.leave <- struct{}{}
	s := <-made
	if _, err := h.Pause(operator(t), string(s.ID)); err != nil {
		t.Fatal(err)
	}
	h.world.resuming = make(chan sandbox.ID)
	done := make(chan error, 1)
	go func() { _, err := h.Resume(operator(t), string(s.ID)); done <- err }()
	k.want(t, <-h.world.resuming, only("a.example"))
	h.world.resuming = nil
	h.world.leave <- struct{}{}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	next := &keeper{}
	h.open(t, func(c *engine.Config) { c.Gateway = next })
	next.want(t, s.ID, only("a.example"))
	if err := h.Remove(operator(t), string(s.ID)); err != nil {
		t.Fatal(err)
	}
	next.want(t, s.ID, nil)
}

func TestSetPolicy(t *testing.T) {
	h, k := guarded(t)
	s := h.create(t, sandbox.CreateRequest{})
	open := sandbox.DefaultPolicy()
	k.want(t, s.ID, &open)
	if p, err := h.Policy(operator(t), string(s.ID)); err != nil || p.Profile != sandbox.ProfileOpen {
		t.Errorf("%+v, %v", p, err)
	}
	if _, err := h.SetPolicy(operator(t), string(s.ID), *only("a.example")); err != nil {
		t.Fatal(err)
	}
	k.want(t, s.ID, only("a.example"))
	page, err := h.Changes(operator(t), sandbox.ChangeQuery{Types: []sandbox.ChangeType{sandbox.ChangePolicy}})
	if err != nil || len(page.Events) != 1 || page.Events[0].Sandbox != s.ID {
		t.Errorf("the journal has %+v, %v", page.Events, err)
	}
	twice := only("*.example")
	twice.Allow = append(twice.Allow, sandbox.Rule{Domains: []string{"a.example"}})
	twice.Allow[0].Domains = []string{"*.b.example", "a.example", "c.example"}
	if warnings, err := h.SetPolicy(operator(t), string(s.ID), *twice); err != nil || len(warnings) != 1 {
		t.Errorf("warnings are %q, %v", warnings, err)
	}
	if _, err := h.SetPolicy(member(t, "stranger"), string(s.ID), open); err == nil {
		t.Error("a stranger set the policy")
	} else {
		wantKind(t, err, sandbox.NotFound)
	}
	_, err = h.SetPolicy(operator(t), string(s.ID), sandbox.Policy{Profile: "x"})
	wantKind(t, err, sandbox.Invalid)
	k.want(t, s.ID, twice)
}

// TestAPolicyThatIsNotWritten takes back what was in force for a moment.
func TestAPolicyThatIsNotWritten(t *testing.T) {
	h, k := guarded(t)
	s := h.create(t, sandbox.CreateRequest{Policy: only("a.example")})
	h.records.mu.Lock()
	h.records.before = func(int, record.Txn) error { return errBroken }
	h.records.mu.Unlock()
	_, err := h.SetPolicy(operator(t), string(s.ID), *only("b.example"))
	wantKind(t, err, sandbox.Exhausted)
	k.want(t, s.ID, only("a.example"))
	h.records.mu.Lock()
	h.records.before = nil
	h.records.mu.Unlock()

	refusal := sandbox.Errorf("check policy", sandbox.Forbidden, "closed")
	k.set(refusal)
	_, err = h.SetPolicy(operator(t), string(s.ID), *only("b.example"))
	wantKind(t, err, sandbox.Forbidden)
	_, err = h.Create(operator(t), sandbox.CreateRequest{Policy: only("b.example")})
	wantKind(t, err, sandbox.Forbidden)
	k.set(nil)
	if p, err := h.Policy(operator(t), string(s.ID)); err != nil || !reflect.DeepEqual(p, *only("a.example")) {
		t.Errorf("on record is %+v, %v", p, err)
	}
	k.want(t, s.ID, only("a.example"))
}

// TestAPolicyThatCannotBeEnforcedAnyMore leaves a sandbox as it is: no kind of
// error is taken for the loss of its machine.
func TestAPolicyThatCannotBeEnforcedAnyMore(t *testing.T) {
	for _, kind := range []sandbox.Kind{sandbox.NotFound, sandbox.Internal, sandbox.Forbidden} {
		h, k := guarded(t)
		ran := h.create(t, sandbox.CreateRequest{Policy: only("a.example")})
		slept := h.create(t, sandbox.CreateRequest{Policy: only("a.example")})
		if _, err := h.Pause(operator(t), string(slept.ID)); err != nil {
			t.Fatal(err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		k.set(sandbox.Errorf("check policy", kind, "it is gone"))
		h.open(t, func(c *engine.Config) { c.Gateway = k })
		if _, err := h.Resume(operator(t), string(slept.ID)); err == nil {
			t.Fatal("it woke without its policy")
		} else {
			wantKind(t, err, sandbox.Unavailable)
		}
		h.wantState(t, ran, sandbox.Running)
		h.wantState(t, slept, sandbox.Paused)
		k.set(nil)
		if _, err := h.SetPolicy(operator(t), string(ran.ID), sandbox.DefaultPolicy()); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Resume(operator(t), string(slept.ID)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWithoutAGatewayPoliciesAreRefused(t *testing.T) {
	h := newHouse(t)
	_, err := h.Create(operator(t), sandbox.CreateRequest{Policy: only("a.example")})
	wantKind(t, err, sandbox.Unsupported)
	s := h.create(t, sandbox.CreateRequest{})
	_, err = h.SetPolicy(operator(t), string(s.ID), *only("a.example"))
	wantKind(t, err, sandbox.Unsupported)
	_, err = h.Audit(operator(t), sandbox.AuditQuery{})
	wantKind(t, err, sandbox.Unsupported)
}
