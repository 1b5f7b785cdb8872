package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// fault is what befalls a server at one step.
type fault string

const (
	errorBefore  fault = "error before"
	errorAfter   fault = "error after" // although the step was done
	killedBefore fault = "killed before"
	killedAfter  fault = "killed after"
)

// fate is one server process: its steps, and what befalls it at one of them.
type fate struct {
	mu    sync.Mutex
	armed bool
	steps []string
	at    int // of steps; -1: never
	how   fault
	only  string // strike the first step of this name from at on; "": the one at at
	hit   bool
	dead  bool
}

func (f *fate) arm(at int, how fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.steps, f.at, f.how, f.only, f.hit = true, nil, at, how, "", false
}

// armFor is arm where steps come in no fixed order and the fault befits those of a name.
func (f *fate) armFor(at int, how fault, step string) {
	f.arm(at, how)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.only = step
}

// strikes reports whether the last step, of this name, is the one.
func (f *fate) strikes(name string) bool {
	at := len(f.steps) - 1
	if f.only == "" {
		return at == f.at
	}
	return !f.hit && f.at >= 0 && at >= f.at && name == f.only
}

func (f *fate) isDead() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dead
}

func (f *fate) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.steps)
}

var (
	errDead     = sandbox.Errorf("test", sandbox.Unavailable, "this process was killed")
	errInternal = sandbox.Errorf("test", sandbox.Internal, "broken inside on purpose")
)

// pass does a step, as the process's fate has it.
func (f *fate) pass(name string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return errDead
	}
	if !f.armed {
		return do()
	}
	f.steps = append(f.steps, name)
	if !f.strikes(name) {
		return do()
	}
	f.hit = true
	switch f.how {
	case errorBefore:
		return errBroken
	case killedBefore:
		f.dead = true
		return errDead
	}
	err := do()
	if f.how == killedAfter {
		f.dead = true
		return errDead
	}
	if err == nil {
		err = errInternal
	}
	return err
}

// mortal is a world and a store as one process sees them.
type mortal struct {
	*world
	fate *fate
}

type mortalStore struct {
	record.Store
	fate *fate
}

type mortalMachine struct {
	*puppet
	fate *fate
}

func (m mortalMachine) Stop(ctx context.Context) error {
	return m.fate.pass("driver stop", func() error { return m.puppet.Stop(ctx) })
}

func (m mortalMachine) Wait(ctx context.Context) (driver.Exit, error) {
	exit, err := m.puppet.Wait(ctx)
	if m.fate.isDead() {
		<-ctx.Done()
	}
	return exit, err
}

func (s mortalStore) Commit(ctx context.Context, t record.Txn) (rev int64, err error) {
	err = s.fate.pass("commit", func() error { rev, err = s.Store.Commit(ctx, t); return err })
	return rev, err
}

func (s mortalStore) Get(ctx context.Context, key string) (record.Entry, error) {
	if s.fate.isDead() {
		return record.Entry{}, errDead
	}
	return s.Store.Get(ctx, key)
}

func (s mortalStore) List(ctx context.Context, prefix, after string, limit int) ([]record.Entry, error) {
	if s.fate.isDead() {
		return nil, errDead
	}
	return s.Store.List(ctx, prefix, after, limit)
}

// machine does a step that gives a machine.
func (m mortal) machine(name string, do func() (driver.Machine, error)) (got driver.Machine, err error) {
	err = m.fate.pass(name, func() error { got, err = do(); return err })
	if err != nil {
		return nil, err
	}
	return mortalMachine{got.(*puppet), m.fate}, nil
}

func (m mortal) Create(ctx context.Context, s driver.Spec) (driver.Machine, error) {
	return m.machine("driver create", func() (driver.Machine, error) { return m.world.Create(ctx, s) })
}

func (m mortal) Recover(ctx context.Context, id sandbox.ID, state []byte) (driver.Machine, error) {
	return m.machine("driver recover", func() (driver.Machine, error) { return m.world.Recover(ctx, id, state) })
}

func (m mortal) Resume(ctx context.Context, s driver.Spec, saved []byte) (driver.Machine, error) {
	return m.machine("driver resume", func() (driver.Machine, error) { return m.world.Resume(ctx, s, saved) })
}

func (m mortal) Pause(ctx context.Context, dm driver.Machine, keep driver.Keep) (saved []byte, err error) {
	err = m.fate.pass("driver pause", func() error { saved, err = m.world.Pause(ctx, dm.(mortalMachine).puppet, keep); return err })
	return saved, err
}

func (m mortal) Reduce(ctx context.Context, s driver.Spec, saved []byte) (left []byte, err error) {
	err = m.fate.pass("driver reduce", func() error { left, err = m.world.Reduce(ctx, s, saved); return err })
	return left, err
}

func (m mortal) Discard(ctx context.Context, id sandbox.ID) error {
	return m.fate.pass("driver discard", func() error { return m.world.Discard(ctx, id) })
}

func (m mortal) Resize(ctx context.Context, dm driver.Machine, l sandbox.Limits) error {
	return m.fate.pass("driver resize", func() error { return m.world.Resize(ctx, dm.(mortalMachine).puppet, l) })
}

func (m mortal) Find(ctx context.Context, id sandbox.ID) (found driver.Found, err error) {
	err = m.fate.pass("driver find", func() error { found, err = m.world.Find(ctx, id); return err })
	return found, err
}

func (m mortal) Sweep(ctx context.Context, keep []sandbox.ID) (swept []sandbox.ID, err error) {
	err = m.fate.pass("driver sweep", func() error { swept, err = m.world.Sweep(ctx, keep); return err })
	return swept, err
}

// mayFollow says whether the driver's contract allows an error although the step
// was done: for the others an error means that it was not.
func mayFollow(step string) bool {
	return step == "commit" || step == "driver pause" || step == "driver stop" || step == "driver discard" || step == "driver reduce"
}

// verbCase is a verb from a state.
type verbCase struct {
	name   string
	from   sandbox.State
	target sandbox.State
	do     func(ctx context.Context, e *engine.Engine, id string) error
}

func verbCases() []verbCase {
	one := func(f func(*engine.Engine, context.Context, string) (sandbox.Sandbox, error)) func(context.Context, *engine.Engine, string) error {
		return func(ctx context.Context, e *engine.Engine, id string) error { _, err := f(e, ctx, id); return err }
	}
	remove := func(ctx context.Context, e *engine.Engine, id string) error { return e.Remove(ctx, id) }
	smaller := func(ctx context.Context, e *engine.Engine, id string) error {
		_, err := e.Update(ctx, id, sandbox.Update{Limits: &sandbox.Limits{CPUMilli: 333}})
		return err
	}
	return []verbCase{
		{"pause", sandbox.Running, sandbox.Paused, one((*engine.Engine).Pause)},
		{"stop", sandbox.Running, sandbox.Stopped, one((*engine.Engine).Stop)},
		{"stop a paused one", sandbox.Paused, sandbox.Stopped, one((*engine.Engine).Stop)},
		{"resume", sandbox.Paused, sandbox.Running, one((*engine.Engine).Resume)},
		{"wake", sandbox.Paused, sandbox.Running, one((*engine.Engine).Awake)},
		{"start", sandbox.Stopped, sandbox.Running, one((*engine.Engine).Start)},
		{"resize", sandbox.Running, sandbox.Running, smaller},
		{"resize a paused one", sandbox.Paused, sandbox.Paused, smaller},
		{"remove", sandbox.Running, sandbox.Deleted, remove},
		{"remove a paused one", sandbox.Paused, sandbox.Deleted, remove},
		{"remove a stopped one", sandbox.Stopped, sandbox.Deleted, remove},
	}
}

// town is a store and a world in which servers come and go.
type town struct {
	t     *testing.T
	h     *house
	store record.Store
	fate  *fate
	e     *engine.Engine
	id    sandbox.ID
	was   content

	archive func(*fate) engine.Archive  // nil: none
	more    func(*engine.Config, *fate) // nil: nothing
}

func newTown(t *testing.T, from sandbox.State) *town {
	h := newHouse(t)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	x := &town{t: t, h: h, store: h.records.Store}
	if err := x.open(-1, ""); err != nil {
		t.Fatal(err)
	}
	s, err := x.e.Create(operator(t), sandbox.CreateRequest{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	x.id, x.was = s.ID, content{"memory of box", "disk of box"}
	h.world.put(s.ID, x.was)
	switch from {
	case sandbox.Paused:
		_, err = x.e.Pause(operator(t), string(s.ID))
	case sandbox.Stopped:
		_, err = x.e.Stop(operator(t), string(s.ID))
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// open starts a server whose fate is known.
func (x *town) open(at int, how fault) error {
	x.fate = &fate{at: -1}
	x.fate.arm(at, how)
	c := engine.Config{Drivers: []driver.Driver{mortal{x.h.world, x.fate}}, Records: mortalStore{x.store, x.fate}, Templates: x.h.templates}
	if x.archive != nil {
		c.Archive = x.archive(x.fate)
	}
	if x.more != nil {
		x.more(&c, x.fate)
	}
	e, err := engine.New(c)
	if err != nil {
		return err
	}
	x.e = e
	x.t.Cleanup(func() { e.Close() })
	return e.Open(operator(x.t))
}

// check holds what is there to the invariants, with a server that is well.
func (x *town) check(c verbCase, acknowledged bool, how string) {
	x.t.Helper()
	page, err := x.e.List(operator(x.t), sandbox.ListQuery{})
	if err != nil {
		x.t.Fatalf("%s: %v", how, err)
	}
	state := sandbox.Deleted
	if len(page.Sandboxes) == 1 {
		state = page.Sandboxes[0].State
	}
	ok := []sandbox.State{c.target}
	if !acknowledged {
		ok = append(ok, c.from)
	}
	if !slices.Contains(ok, state) {
		x.t.Errorf("%s: it is %s, acknowledged %v: %+v", how, state, acknowledged, page.Sandboxes)
	}
	if c.target == sandbox.Deleted && !acknowledged { // what has begun is finished
		if err := x.e.Remove(operator(x.t), string(x.id)); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
			x.t.Errorf("%s: remove again: %v", how, err)
		}
		state = sandbox.Deleted
	}
	x.oneOwner(state, how)
	x.keys(state, how)
	if state == sandbox.Deleted {
		return
	}
	kept := x.was
	if state == sandbox.Stopped || c.from == sandbox.Stopped {
		kept.memory = ""
	}
	if _, err := x.e.Start(operator(x.t), "box"); err != nil {
		x.t.Errorf("%s: start: %v", how, err)
	}
	if got, lives := x.h.world.inside(x.id); !lives || got != kept {
		x.t.Errorf("%s: inside is %+v, want %+v", how, got, kept)
	}
	if err := x.e.Remove(operator(x.t), "box"); err != nil {
		x.t.Errorf("%s: remove: %v", how, err)
	}
	x.oneOwner(sandbox.Deleted, how)
	x.keys(sandbox.Deleted, how)
}

// oneOwner: what the driver has is what the record says, and nothing else.
func (x *town) oneOwner(state sandbox.State, how string) {
	x.t.Helper()
	live, aside := len(x.h.world.ids()), len(x.h.world.asides())
	wantLive, wantAside := 0, 0
	switch state {
	case sandbox.Running:
		wantLive = 1
	case sandbox.Paused, sandbox.Stopped:
		wantAside = 1
	}
	if live != wantLive || aside != wantAside {
		x.t.Errorf("%s: it is %s, with %d machines and %d aside", how, state, live, aside)
	}
}

// keys: the store has the keys of the state, and no others.
func (x *town) keys(state sandbox.State, how string) {
	x.t.Helper()
	entries, err := x.store.List(operator(x.t), "", "", 0)
	if err != nil {
		x.t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		kind, _, _ := strings.Cut(e.Key, "/")
		if kind != "event" {
			got = append(got, kind)
		}
	}
	want := map[sandbox.State][]string{
		sandbox.Running: {"machine", "name", "newest", "own", "owned", "sandbox"},
		sandbox.Paused:  {"name", "newest", "own", "owned", "sandbox", "saved"},
		sandbox.Stopped: {"name", "newest", "own", "owned", "sandbox", "saved"},
	}[state]
	if !slices.Equal(got, want) {
		x.t.Errorf("%s: it is %s, with the keys %q", how, state, got)
	}
	x.journal(how)
	x.ledger(how)
}

// ledger: the account uses what its sandboxes' records say, a moment after they do:
// who notices a machine's end may be finishing a remove besides the caller.
func (x *town) ledger(how string) {
	x.t.Helper()
	var used, want sandbox.Quota
	for range 3000 {
		page, err := x.e.List(operator(x.t), sandbox.ListQuery{})
		if err != nil {
			x.t.Fatal(err)
		}
		want = sandbox.Quota{}
		for _, s := range page.Sandboxes {
			switch s.State {
			case sandbox.Running:
				want.Sandboxes, want.CPUMilli, want.MemoryBytes = want.Sandboxes+1, want.CPUMilli+s.Limits.CPUMilli, want.MemoryBytes+s.Limits.MemoryBytes
				want.DiskBytes += s.Limits.DiskBytes
			case sandbox.Paused, sandbox.Stopped:
				want.DiskBytes += s.Limits.DiskBytes
			}
		}
		if used = x.e.Used(sandbox.MainAccount); used == want {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	x.t.Errorf("%s: %+v is used, want %+v", how, used, want)
}

// journal: the states on record follow each other as the table has it.
func (x *town) journal(how string) {
	x.t.Helper()
	page, err := x.e.Changes(operator(x.t), sandbox.ChangeQuery{Limit: 1000})
	if err != nil {
		x.t.Fatal(err)
	}
	last := map[sandbox.ID]sandbox.State{}
	for _, c := range page.Events {
		before, known := last[c.Sandbox]
		if c.From != before || known && !before.CanBecome(c.State) {
			x.t.Errorf("%s: from %s the journal goes to %+v", how, before, c)
		}
		last[c.Sandbox] = c.State
	}
}

// TestCrashes breaks every verb at each of its steps, in each way, and then the
// recovery at each of its own.
func TestCrashes(t *testing.T) {
	for _, c := range verbCases() {
		t.Run(c.name, func(t *testing.T) {
			x := newTown(t, c.from)
			x.fate.arm(-1, "")
			if err := c.do(operator(t), x.e, string(x.id)); err != nil {
				t.Fatal(err)
			}
			steps := x.fate.taken()
			x.check(c, true, "undisturbed")
			t.Logf("steps: %q", steps)
			for at, step := range steps {
				for _, how := range []fault{errorBefore, errorAfter, killedBefore, killedAfter} {
					if how == errorAfter && !mayFollow(step) {
						continue
					}
					crash(t, c, at, how, fmt.Sprintf("%s step %d (%s)", how, at, step))
				}
			}
		})
	}
}

func crash(t *testing.T, c verbCase, at int, how fault, what string) {
	t.Helper()
	// recovery -1 is undisturbed; the others end when there is no such step.
	for recovery := -1; ; recovery++ {
		x := newTown(t, c.from)
		x.fate.arm(at, how)
		err := c.do(operator(t), x.e, string(x.id))
		if how == errorBefore || how == errorAfter {
			if recovery >= 0 {
				return
			}
			x.check(c, err == nil, what)
			return
		}
		if err == nil && !x.fate.isDead() {
			t.Fatalf("%s: nothing befell it", what)
		}
		label := what
		if recovery >= 0 {
			label = fmt.Sprintf("%s, then killed after step %d of the recovery", what, recovery)
			_ = x.open(recovery, killedAfter)
			if !x.fate.isDead() {
				return
			}
		}
		if err := x.open(-1, ""); err != nil {
			t.Fatalf("%s: open: %v", label, err)
		}
		x.check(c, false, label)
	}
}

// TestCreateCrashes kills the server at each step of a create: there is a whole
// sandbox or none.
func TestCreateCrashes(t *testing.T) {
	for at := 0; ; at++ {
		for _, how := range []fault{killedBefore, killedAfter} {
			x := newTown(t, sandbox.Running)
			if err := x.e.Remove(operator(t), "box"); err != nil {
				t.Fatal(err)
			}
			x.fate.arm(at, how)
			_, err := x.e.Create(operator(t), sandbox.CreateRequest{Name: "box"})
			if !x.fate.isDead() {
				if err != nil || at < 3 {
					t.Fatalf("%v after %q", err, x.fate.taken())
				}
				return
			}
			if err := x.open(-1, ""); err != nil {
				t.Fatal(err)
			}
			state := sandbox.Deleted
			if got, err := x.e.Get(operator(t), "box"); err == nil {
				state = got.State
			}
			if state != sandbox.Deleted && state != sandbox.Running {
				t.Errorf("%s step %d: it is %s", how, at, state)
			}
			label := fmt.Sprintf("%s step %d of create", how, at)
			x.oneOwner(state, label)
			x.keys(state, label)
		}
	}
}

// TestStopOfAPausedOneRunsNothing: it gives up its memory where it lies.
func TestStopOfAPausedOneRunsNothing(t *testing.T) {
	x := newTown(t, sandbox.Paused)
	x.h.world.set("resume", errBroken)
	s, err := x.e.Stop(operator(t), string(x.id))
	if err != nil || s.State != sandbox.Stopped {
		t.Fatalf("it is %s, %v", s.State, err)
	}
	x.h.world.set("resume", nil)
	x.check(verbCase{from: sandbox.Paused, target: sandbox.Stopped}, true, "stopped")

	x = newTown(t, sandbox.Paused)
	x.h.world.set("reduce", errBroken)
	if _, err := x.e.Stop(operator(t), string(x.id)); err == nil {
		t.Error("a stop that the driver refused was acknowledged")
	}
	x.check(verbCase{from: sandbox.Paused, target: sandbox.Paused}, true, "refused")
}
