package engine_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/engine"
	"github.com/berth-dev/berth/sandbox"
)

// paused makes a sandbox and puts it aside.
func (h *house) paused(t *testing.T, r sandbox.CreateRequest) sandbox.Sandbox {
	t.Helper()
	s := h.create(t, r)
	s, err := h.Pause(operator(t), string(s.ID))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWakersShareOneResume: 50 calls at once, one resume.
func TestWakersShareOneResume(t *testing.T) {
	h := newHouse(t)
	s := h.paused(t, sandbox.CreateRequest{})
	h.world.resuming, h.world.leave = make(chan sandbox.ID), make(chan struct{})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			got, err := h.Awake(operator(t), string(s.ID))
			if err != nil || got.State != sandbox.Running {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
	<-h.world.resuming
	close(h.world.leave)
	wg.Wait()
	if h.world.resumes != 1 {
		t.Errorf("%d resumes", h.world.resumes)
	}
}

// TestAWakerThatLeaves does not end the waking, and another is told in time.
func TestAWakerThatLeaves(t *testing.T) {
	h := newHouse(t, func(c *engine.Config) { c.Wake = 20 * time.Millisecond })
	s := h.paused(t, sandbox.CreateRequest{})
	h.world.resuming, h.world.leave = make(chan sandbox.ID, 9), make(chan struct{})
	_, err := h.Awake(operator(t), string(s.ID))
	wantKind(t, err, sandbox.Timeout)
	if sandbox.HintOf(err) == "" {
		t.Error("no hint")
	}
	close(h.world.leave)
	await(t, "it runs all the same", func() bool {
		got, err := h.Get(operator(t), string(s.ID))
		return err == nil && got.State == sandbox.Running
	})
}

func TestAwakeIsRefused(t *testing.T) {
	h := newHouse(t)
	no := false
	s := h.paused(t, sandbox.CreateRequest{Wake: &no})
	_, err := h.Awake(operator(t), string(s.ID))
	wantKind(t, err, sandbox.Conflict)
	if !strings.Contains(sandbox.HintOf(err), "berth resume") {
		t.Errorf("hint %q", sandbox.HintOf(err))
	}
	if _, err := h.Resume(operator(t), string(s.ID)); err != nil {
		t.Errorf("resume: %v", err)
	}
	_, err = h.Awake(operator(t), string(sandbox.NewID()))
	wantKind(t, err, sandbox.NotFound)
	h.world.crash(s.ID, "killed")
	await(t, "it is failed", func() bool {
		got, err := h.Get(operator(t), string(s.ID))
		return err == nil && got.State == sandbox.Failed
	})
	_, err = h.Awake(operator(t), string(s.ID))
	wantKind(t, err, sandbox.Conflict)
}

// TestWakeThatFails: it stays as it is with the cause, unless what was kept is
// gone.
func TestWakeThatFails(t *testing.T) {
	h := newHouse(t)
	s := h.paused(t, sandbox.CreateRequest{})
	h.world.set("resume", errBroken)
	_, err := h.Awake(operator(t), string(s.ID))
	wantKind(t, err, sandbox.Exhausted)
	got, err := h.Get(operator(t), string(s.ID))
	if err != nil || got.State != sandbox.Paused || !strings.Contains(got.Reason, "broken on purpose") {
		t.Errorf("%+v, %v", got, err)
	}
	h.world.set("resume", nil)
	if got, err := h.Resume(operator(t), string(s.ID)); err != nil || got.State != sandbox.Running || got.Reason != "" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, kind := range []sandbox.Kind{sandbox.Internal, sandbox.NotFound} {
		s := h.paused(t, sandbox.CreateRequest{})
		h.world.set("resume", sandbox.Errorf("load", kind, "the image is damaged"))
		_, err := h.Awake(operator(t), string(s.ID))
		wantKind(t, err, kind)
		got, err := h.Get(operator(t), string(s.ID))
		if err != nil || got.State != sandbox.Failed || !strings.Contains(got.Reason, "damaged") {
			t.Errorf("%s: %+v, %v", kind, got, err)
		}
		h.world.set("resume", nil)
		if err := h.Remove(operator(t), string(s.ID)); err != nil {
			t.Error(err)
		}
	}
}

// TestACallWhileThePauseRuns waits and wakes.
func TestACallWhileThePauseRuns(t *testing.T) {
	h := newHouse(t)
	s := h.create(t, sandbox.CreateRequest{})
	h.world.pausing, h.world.leave = make(chan sandbox.ID), make(chan struct{})
	pause := make(chan error, 1)
	go func() { _, err := h.Pause(operator(t), string(s.ID)); pause <- err }()
	<-h.world.pausing
	wake := make(chan error, 1)
	go func() { _, err := h.Awake(operator(t), string(s.ID)); wake <- err }()
	close(h.world.leave)
	if err := <-pause; err != nil {
		t.Fatal(err)
	}
	if err := <-wake; err != nil {
		t.Fatal(err)
	}
	if _, lives := h.world.inside(s.ID); !lives || h.world.resumes != 1 {
		t.Errorf("lives %v after %d resumes", lives, h.world.resumes)
	}
}

// TestVerbsAgain: a verb that is asked for twice is done once.
func TestVerbsAgain(t *testing.T) {
	h := newHouse(t)
	id := string(h.create(t, sandbox.CreateRequest{}).ID)
	for _, step := range []struct {
		name string
		do   func() (sandbox.Sandbox, error)
		want sandbox.State
		kind sandbox.Kind
	}{
		{"resume", func() (sandbox.Sandbox, error) { return h.Resume(operator(t), id) }, sandbox.Running, ""},
		{"pause", func() (sandbox.Sandbox, error) { return h.Pause(operator(t), id) }, sandbox.Paused, ""},
		{"pause", func() (sandbox.Sandbox, error) { return h.Pause(operator(t), id) }, sandbox.Paused, ""},
		{"stop", func() (sandbox.Sandbox, error) { return h.Stop(operator(t), id) }, sandbox.Stopped, ""},
		{"stop", func() (sandbox.Sandbox, error) { return h.Stop(operator(t), id) }, sandbox.Stopped, ""},
		{"pause", func() (sandbox.Sandbox, error) { return h.Pause(operator(t), id) }, sandbox.Stopped, sandbox.Conflict},
		{"resume", func() (sandbox.Sandbox, error) { return h.Resume(operator(t), id) }, sandbox.Stopped, sandbox.Conflict},
		{"start", func() (sandbox.Sandbox, error) { return h.Start(operator(t), id) }, sandbox.Running, ""},
		{"start", func() (sandbox.Sandbox, error) { return h.Start(operator(t), id) }, sandbox.Running, ""},
	} {
		_, err := step.do()
		wantKind(t, err, step.kind)
		if got, err := h.Get(operator(t), id); err != nil || got.State != step.want {
			t.Fatalf("after %s: %+v, %v", step.name, got, err)
		}
	}
}

// TestManyVerbsAtOnce: whatever is asked for at once, the end is whole.
func TestManyVerbsAtOnce(t *testing.T) {
	h := newHouse(t)
	s := h.create(t, sandbox.CreateRequest{})
	h.world.put(s.ID, content{"memory", "disk"})
	id := string(s.ID)
	var wg sync.WaitGroup
	for i := range 60 {
		wg.Go(func() {
			var err error
			switch i % 4 {
			case 0:
				_, err = h.Pause(operator(t), id)
			case 1:
				_, err = h.Awake(operator(t), id)
			case 2:
				_, err = h.Resume(operator(t), id)
			case 3:
				release, cerr := h.Connect(operator(t), id)
				if err = cerr; err == nil {
					release()
				}
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if _, err := h.Resume(operator(t), id); err != nil {
		t.Fatal(err)
	}
	if got, lives := h.world.inside(s.ID); !lives || got != (content{"memory", "disk"}) {
		t.Errorf("inside %+v, lives %v", got, lives)
	}
	if err := h.Remove(operator(t), id); err != nil {
		t.Fatal(err)
	}
	h.nothingLeft(t)
}

// TestReboot: what is aside outlasts the host; what ran says why it does not.
func TestReboot(t *testing.T) {
	boot := func(id string) func(*engine.Config) { return func(c *engine.Config) { c.Boot = id } }
	h := newHouse(t, boot("one"))
	asleep, ran := h.paused(t, sandbox.CreateRequest{}), h.create(t, sandbox.CreateRequest{})
	h.Close()
	h.world.mu.Lock()
	delete(h.world.machines, ran.ID)
	h.world.mu.Unlock()
	h.open(t, boot("two"))
	if got, err := h.Get(operator(t), string(ran.ID)); err != nil || got.State != sandbox.Failed || !strings.Contains(got.Reason, "restarted") {
		t.Errorf("the one that ran: %+v, %v", got, err)
	}
	if got, err := h.Resume(operator(t), string(asleep.ID)); err != nil || got.State != sandbox.Running {
		t.Errorf("the one aside: %+v, %v", got, err)
	}
}
