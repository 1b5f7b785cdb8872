package engine_test

import (
	"context"
	"fmt"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var _ driver.Forker = (*world)(nil)

// Fork makes puppets with what m has inside. Those whose turn the world refuses
// ("fork 2" is the second) fail alone; all fail with "fork".
func (w *world) Fork(_ context.Context, m driver.Machine, specs []driver.Spec) (driver.Forks, error) {
	return w.fork(specs, func() (content, bool) {
		p := m.(*puppet)
		return p.content, w.machines[p.id] == p
	})
}

func (w *world) ForkSaved(_ context.Context, id sandbox.ID, saved []byte, specs []driver.Spec) (driver.Forks, error) {
	return w.fork(specs, func() (content, bool) {
		k := w.aside[id]
		if k == nil || k.token != string(saved) {
			return content{}, false
		}
		return k.content, true
	})
}

func (w *world) fork(specs []driver.Spec, inside func() (content, bool)) (driver.Forks, error) {
	if w.forking != nil {
		w.forking <- len(specs)
		<-w.leave
	}
	if err := w.failing("fork"); err != nil {
		return driver.Forks{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok := inside()
	if !ok {
		return driver.Forks{}, sandbox.Errorf("fork", sandbox.Unavailable, "the machine has ended")
	}
	f := driver.Forks{Pause: time.Millisecond, Stages: []driver.Stage{{Name: "pause", Took: time.Millisecond}}}
	for i, s := range specs {
		if err := w.fail[fmt.Sprintf("fork %d", i+1)]; err != nil {
			f.Each = append(f.Each, driver.Forked{Err: err})
			continue
		}
		w.count++
		p := newPuppet(w, s, fmt.Sprintf("state of %s #%d", s.ID, w.count))
		p.content = c
		w.machines[s.ID] = p
		f.Each = append(f.Each, driver.Forked{Machine: p})
	}
	return f, nil
}

func (m mortal) Fork(ctx context.Context, dm driver.Machine, specs []driver.Spec) (driver.Forks, error) {
	return m.forked(func() (driver.Forks, error) { return m.world.Fork(ctx, dm.(mortalMachine).puppet, specs) })
}

func (m mortal) ForkSaved(ctx context.Context, id sandbox.ID, saved []byte, specs []driver.Spec) (driver.Forks, error) {
	return m.forked(func() (driver.Forks, error) { return m.world.ForkSaved(ctx, id, saved, specs) })
}

func (m mortal) forked(do func() (driver.Forks, error)) (f driver.Forks, err error) {
	err = m.fate.pass("driver fork", func() error { f, err = do(); return err })
	if err != nil {
		return driver.Forks{}, err
	}
	for i := range f.Each {
		if p, ok := f.Each[i].Machine.(*puppet); ok {
			f.Each[i].Machine = mortalMachine{p, m.fate}
		}
	}
	return f, nil
}
