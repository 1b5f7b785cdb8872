package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/sandbox"
)

// live is a machine that this process holds, with the way to its guest.
type live struct {
	machine driver.Machine
	guest   *guestclient.Client
	uses
	eye     portEye
	parted  atomic.Value // sandbox.State: what it is being put aside as, or ""
	loose   atomic.Bool  // processes outlive their streams: see loosen
	watched sync.Once
}

// part says that the machine is about to end because it is put aside.
func (l *live) part(to sandbox.State) { l.parted.Store(to) }

// reopen lets users in again.
func (l *live) reopen() {
	l.parted.Store(sandbox.State(""))
	l.uses.open()
}

// hold registers a machine and watches it until it ends or the engine closes.
// The caller holds the sandbox's lock.
func (e *Engine) hold(id sandbox.ID, m driver.Machine) *live {
	return e.holdWith(id, m, guestclient.Of(m))
}

// holdWith is hold for a machine whose guest has been spoken to.
func (e *Engine) holdWith(id sandbox.ID, m driver.Machine, g *guestclient.Client) *live {
	l := e.keepWith(id, m, g)
	e.attend(id, l)
	return l
}

// attend watches a machine that was registered, once.
func (e *Engine) attend(id sandbox.ID, l *live) {
	l.watched.Do(func() { e.tasks.Go(func() { e.watch(id, l) }) })
}

// keep registers a machine without watching it.
func (e *Engine) keep(id sandbox.ID, m driver.Machine) *live {
	return e.keepWith(id, m, guestclient.Of(m))
}

func (e *Engine) keepWith(id sandbox.ID, m driver.Machine, g *guestclient.Client) *live {
	l := &live{machine: m, guest: g}
	l.touch(e.now())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.live[id] = l
	return l
}

func (e *Engine) held(id sandbox.ID) *live {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.live[id]
}

// holds lists the machines that this process holds.
func (e *Engine) holds() []sandbox.ID {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.live))
}

// drop forgets a machine that has been stopped.
func (e *Engine) drop(id sandbox.ID) error {
	e.mu.Lock()
	l := e.live[id]
	delete(e.live, id)
	e.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.guest.Close()
}

// watch waits for a machine's end and settles it, again and again if need be:
// a store that is out of reach now will be back.
func (e *Engine) watch(id sandbox.ID, l *live) {
	exit, err := l.machine.Wait(e.ctx)
	if e.ctx.Err() != nil {
		return
	}
	if err != nil {
		exit.Reason = fmt.Sprintf("its machine cannot be watched: %v", err)
	}
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 30*time.Second) {
		err := e.settle(e.ctx, id, l, exit.Reason)
		if err == nil || e.ctx.Err() != nil {
			return
		}
		e.log.Error("settle an ended sandbox", "sandbox", id, "error", err, "again_in", pause)
		select {
		case <-time.After(pause):
		case <-e.ctx.Done():
			return
		}
	}
}

// settle records that a machine ended by itself and removes what it left. One
// that a verb has ended meanwhile is no longer held: then there is nothing to do.
func (e *Engine) settle(ctx context.Context, id sandbox.ID, l *live, reason string) error {
	unlock, err := e.sandboxes.Lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	if e.held(id) != l {
		return nil
	}
	s, err := e.loadMended(ctx, id)
	if err != nil {
		return err
	}
	if e.held(id) != l { // what was under way when it ended has ended it
		return nil
	}
	if reason == "" {
		reason = "its machine ended"
	}
	e.measure(ctx, id, l) // the counters end with the machine
	stop, cancel := context.WithTimeout(ctx, stopTime)
	defer cancel()
	if err := l.machine.Stop(stop); err != nil {
		return err
	}
	if back, err := e.fallBack(ctx, s, reason); back || err != nil {
		return err
	}
	if err := e.transition(ctx, s, sandbox.Failed, reason, record.Op{Key: machineKey(id), Delete: true}); err != nil {
		return err
	}
	e.log.Info("sandbox failed", "sandbox", id, "reason", reason)
	return e.drop(id)
}

// adopt takes up the machine of a sandbox whose record says that it runs, and
// which this process does not hold. One that is gone makes the sandbox Failed.
// The caller holds the sandbox's lock.
func (e *Engine) adopt(ctx context.Context, s *stored) (*live, error) {
	m, err := e.recover(ctx, s)
	if sandbox.KindOf(err) == sandbox.NotFound {
		if err := e.lose(ctx, s); err != nil {
			return nil, err
		}
		return nil, notRunning(s)
	}
	if err != nil {
		return nil, err
	}
	l := e.hold(s.ID, m)
	return l, e.feedOn(ctx, s, m)
}

// recover asks the sandbox's driver for its machine; NotFound means that there
// is none.
func (e *Engine) recover(ctx context.Context, s *stored) (driver.Machine, error) {
	entry, err := e.records.Get(ctx, machineKey(s.ID))
	if err != nil {
		return nil, err
	}
	d, err := e.driver(s.Class)
	if err != nil {
		return nil, err
	}
	if err := e.enforceAgain(ctx, s); err != nil {
		return nil, err
	}
	return d.Recover(ctx, s.ID, entry.Value)
}

// driver returns the driver of a class that some sandbox has.
func (e *Engine) driver(class string) (driver.Driver, error) {
	if d := e.drivers[class]; d != nil {
		return d, nil
	}
	return nil, &sandbox.Error{Op: "find driver", Kind: sandbox.Unavailable,
		Err:  fmt.Errorf("this server runs no class %q", class),
		Hint: "start the server with that isolation class"}
}

// stateHints says what to do with a sandbox that does not run.
var stateHints = map[sandbox.State]string{
	sandbox.Starting: "it is starting: wait until its state is running",
	sandbox.Paused:   "it is paused: berth resume wakes it",
	sandbox.Stopped:  "it is stopped: berth start boots it again",
	sandbox.Failed:   "it has failed and will not run again: remove it and create another",
	sandbox.Deleted:  "it is deleted: create another",
}

// notRunning is the error of a verb that needs a running sandbox.
func notRunning(s *stored) error {
	text := "the sandbox is " + string(s.State)
	if s.Reason != "" {
		text += ": " + s.Reason
	}
	return &sandbox.Error{Kind: sandbox.Conflict, Err: errors.New(text), Hint: stateHints[s.State]}
}
