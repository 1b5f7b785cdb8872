package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// defaultWake bounds how long a call waits for its sandbox to wake.
const defaultWake = time.Minute

// Awake makes a sandbox run and returns it: at once if it does, after a resume
// if it is paused or stopped. It is the one path by which every verb and every
// door comes to a machine.
//
// Those who come at once share one resume, which goes on although they leave.
// Conflict: it failed, is starting, or is not to be woken by calls. Timeout: it
// did not wake in time; it goes on waking.
func (e *Engine) Awake(ctx context.Context, id string) (sandbox.Sandbox, error) {
	s, _, err := e.running(ctx, id)
	if err != nil {
		return sandbox.Sandbox{}, fail("wake", known(id), err)
	}
	return s.Sandbox, nil
}

// Connect wakes a sandbox and counts an open connection to it until release is
// called, which may be more than once.
func (e *Engine) Connect(ctx context.Context, id string) (release func(), err error) {
	_, _, end, err := e.using(ctx, id, sandbox.ActivityConnection)
	if err != nil {
		return nil, fail("connect", known(id), err)
	}
	return end, nil
}

// running returns a sandbox's record and its machine, or says why it has none.
func (e *Engine) running(ctx context.Context, id string) (*stored, *live, error) {
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	return e.awake(ctx, sid, false)
}

// using is running for a caller that is an activity until end is called.
func (e *Engine) using(ctx context.Context, id string, a sandbox.Activity) (s *stored, l *live, end func(), err error) {
	sid, err := e.resolve(ctx, id)
	if err != nil {
		return nil, nil, nil, err
	}
	for {
		if s, l, err = e.awake(ctx, sid, false); err != nil {
			return nil, nil, nil, err
		}
		if end, ok := l.begin(a, e.now); ok {
			if a != sandbox.ActivityConnection {
				e.stirPorts(sid, l)
			}
			return s, l, end, nil
		}
	}
}

// awake returns a sandbox that runs with its machine. asked says that somebody
// wants it to wake, whatever its own setting.
func (e *Engine) awake(ctx context.Context, id sandbox.ID, asked bool) (*stored, *live, error) {
	for {
		s, err := e.load(ctx, id)
		if err != nil {
			return nil, nil, err
		}
		if s.State == sandbox.Running && s.Doing == nil {
			if l := e.held(id); l != nil && l.touch(e.now()) {
				if s.trusts() || e.credentials == nil {
					return s, l, nil
				}
				if err := e.haveTrust(ctx, id); err != nil {
					return nil, nil, err
				}
				continue
			}
		} else if s.Doing == nil && s.State != sandbox.Paused && s.State != sandbox.Stopped {
			return nil, nil, notRunning(s)
		}
		if err := e.wakes.join(ctx, e, id, asked); err != nil {
			return nil, nil, err
		}
	}
}

// wakes holds the wakings under way: one a sandbox, shared by all who wait.
type wakes struct {
	most time.Duration // that somebody waits

	mu  sync.Mutex
	all map[wakeKey]*wake
}

type wakeKey struct {
	id    sandbox.ID
	asked bool
}

type wake struct {
	done chan struct{}
	err  error // set before done is closed
}

// join waits for the sandbox's waking, and begins it if nobody has.
func (w *wakes) join(ctx context.Context, e *Engine, id sandbox.ID, asked bool) error {
	k := wakeKey{id, asked}
	w.mu.Lock()
	one := w.all[k]
	if one == nil {
		finished, err := e.task()
		if err != nil {
			w.mu.Unlock()
			return err
		}
		one = &wake{done: make(chan struct{})}
		w.all[k] = one
		go func() {
			defer finished()
			one.err = e.wakeOne(e.ctx, id, asked)
			w.mu.Lock()
			delete(w.all, k)
			w.mu.Unlock()
			close(one.done)
		}()
	}
	w.mu.Unlock()
	t := time.NewTimer(w.most)
	defer t.Stop()
	select {
	case <-one.done:
		return one.err
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return &sandbox.Error{Op: "wake", Kind: sandbox.Timeout, Err: fmt.Errorf("it did not run within %v", w.most),
			Hint: "it goes on waking: call again in a moment"}
	}
}

// wakeOne brings a sandbox to Running, whatever is under way with it.
func (e *Engine) wakeOne(ctx context.Context, id sandbox.ID, asked bool) error {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	s, err := e.loadMended(ctx, id)
	if err != nil {
		return err
	}
	if s.State == sandbox.Running {
		if l := e.held(id); l != nil {
			l.reopen()
			return nil
		}
		if _, err := e.adopt(ctx, s); err == nil || s.State == sandbox.Running {
			return err
		} // else its machine is lost, and it may have a checkpoint
	}
	switch s.State {
	case sandbox.Paused, sandbox.Stopped:
		if !asked && s.Wake != nil && !*s.Wake {
			return asleep(s)
		}
		if err := e.mayWake(s); err != nil {
			return err
		}
		if err := e.roomToWake(ctx, s); err != nil {
			return err
		}
		return e.wakeAdmitted(ctx, s)
	}
	return notRunning(s)
}

// wakeAdmitted takes a sandbox back, if its account's quota has room for it.
func (e *Engine) wakeAdmitted(ctx context.Context, s *stored) error {
	awake := *s
	awake.State = sandbox.Running
	if err := e.admit(ctx, &awake); err != nil {
		return err
	}
	_, err := e.takeBack(ctx, s)
	if err != nil && s.Doing == nil {
		e.ledger.note(s)
	}
	return err
}

// asleep is the error of a call to a sandbox that calls do not wake.
func asleep(s *stored) error {
	verb := map[sandbox.State]string{sandbox.Paused: "resume", sandbox.Stopped: "start"}[s.State]
	return &sandbox.Error{Kind: sandbox.Conflict, Err: errors.New("the sandbox is " + string(s.State) + ", and calls do not wake it"),
		Hint: "berth " + verb + " " + string(s.ID) + " wakes it; with wake set to true every call does"}
}
