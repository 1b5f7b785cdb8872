package engine_test

import (
	"context"
	"fmt"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// content is what a puppet has inside: what a pause must keep.
type content struct {
	memory, disk string
}

// kept is a puppet that was put aside.
type kept struct {
	content
	token string
}

var (
	_ driver.Pauser  = (*world)(nil)
	_ driver.Finder  = (*world)(nil)
	_ driver.Resizer = (*world)(nil)
	_ driver.Reducer = (*world)(nil)
)

func (w *world) Pause(_ context.Context, m driver.Machine, keep driver.Keep) ([]byte, error) {
	if err := w.failing("pause"); err != nil {
		return nil, err
	}
	p := m.(*puppet)
	if w.pausing != nil {
		w.pausing <- p.id
		<-w.leave
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machines[p.id] != p {
		return nil, sandbox.Errorf("pause", sandbox.Unavailable, "the machine has ended")
	}
	w.count++
	k := &kept{content: p.content, token: fmt.Sprintf("%s kept %s #%d", p.id, keep, w.count)}
	if keep == driver.KeepDisk {
		k.memory = ""
	}
	delete(w.machines, p.id)
	w.aside[p.id] = k
	p.end(driver.Exit{Asked: true})
	return []byte(k.token), nil
}

func (w *world) Resume(ctx context.Context, s driver.Spec, saved []byte) (driver.Machine, error) {
	if w.resuming != nil {
		w.resuming <- s.ID
		select {
		case <-w.leave:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err := w.failing("resume"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.aside[s.ID]
	if w.machines[s.ID] != nil {
		return nil, sandbox.Errorf("resume", sandbox.Conflict, "two owners of %s", s.ID)
	}
	if k == nil || k.token != string(saved) {
		return nil, sandbox.Errorf("resume", sandbox.NotFound, "nothing is aside for %q", saved)
	}
	delete(w.aside, s.ID)
	w.count++
	w.resumes++
	m := newPuppet(w, s, fmt.Sprintf("state of %s #%d", s.ID, w.count))
	m.content = k.content
	w.machines[s.ID] = m
	return m, nil
}

func (w *world) Reduce(_ context.Context, s driver.Spec, saved []byte) ([]byte, error) {
	if err := w.failing("reduce"); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.aside[s.ID]
	if k == nil || k.token != string(saved) {
		return nil, sandbox.Errorf("reduce", sandbox.NotFound, "nothing is aside for %q", saved)
	}
	if k.memory == "" {
		return saved, nil
	}
	w.count++
	k.memory, k.token = "", fmt.Sprintf("%s kept disk #%d", s.ID, w.count)
	return []byte(k.token), nil
}

func (w *world) Discard(_ context.Context, id sandbox.ID) error {
	if err := w.failing("discard"); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machines[id] != nil {
		return sandbox.Errorf("discard", sandbox.Conflict, "it lives")
	}
	delete(w.aside, id)
	return nil
}

func (w *world) Find(_ context.Context, id sandbox.ID) (driver.Found, error) {
	if err := w.failing("find"); err != nil {
		return driver.Found{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.machines[id]; m != nil {
		return driver.Found{State: m.State()}, nil
	}
	if k := w.aside[id]; k != nil {
		return driver.Found{Saved: []byte(k.token)}, nil
	}
	return driver.Found{}, sandbox.Errorf("find", sandbox.NotFound, "nothing is left of it")
}

func (w *world) Resize(_ context.Context, m driver.Machine, l sandbox.Limits) error {
	if err := w.failing("resize"); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m.(*puppet).limits = l
	return nil
}

// put gives a machine something to keep.
func (w *world) put(id sandbox.ID, c content) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.machines[id].content = c
}

func (w *world) inside(id sandbox.ID) (c content, lives bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.machines[id]; m != nil {
		return m.content, true
	}
	return c, false
}

func (w *world) asides() (ids []sandbox.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for id := range w.aside {
		ids = append(ids, id)
	}
	return ids
}
