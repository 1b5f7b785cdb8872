package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// shellPatience is how long a shell that nobody waits for yet may take to start beside
// all else. After that it is as urgent as anything: half started it serves nobody.
const shellPatience = 3 * time.Second

// starting is a shell that is being started ahead. Until somebody wants it, its
// processes run only where no others would.
type starting struct {
	out chan *shell // has room for what it comes to; nil: for nothing

	mu     sync.Mutex
	group  *group // nil before there is one
	urgent bool
}

func newStarting() *starting { return &starting{out: make(chan *shell, 1)} }

// begin takes the group that the shell is about to be started in. A nil starting is
// as urgent as anything.
func (st *starting) begin(g *group) error {
	if st == nil {
		return nil
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.group = g
	if st.urgent {
		return nil
	}
	return g.setIdle(true)
}

// hurry makes the shell as urgent as anything. One that is gone is no error.
func (st *starting) hurry() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.urgent = true
	if st.group == nil {
		return nil
	}
	err := st.group.setIdle(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// start starts a shell of a kind under an id of its own, and gives it to whoever has
// come to wait for it, or else to those that are ready.
func (s *shelf) start(ctx context.Context, k kind, st *starting) {
	sh, err := s.newShell(ctx, k, st)
	if err != nil && ctx.Err() == nil {
		s.config.Logger.Warn("start an engine ahead", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.under--
	w := s.kinds[k]
	switch mine := w != nil && w.unclaim(st); {
	case !mine:
		st.out <- sh
	case sh != nil:
		w.ready = append(w.ready, sh)
	case ctx.Err() == nil:
		w.retry = time.Now().Add(shellRetry)
	}
	s.stir()
}

// newShell starts one.
func (s *shelf) newShell(ctx context.Context, k kind, st *starting) (sh *shell, err error) {
	late := time.AfterFunc(shellPatience, func() {
		if err := st.hurry(); err != nil {
			s.config.Logger.Warn("hurry an engine that starts", "error", err)
		}
	})
	defer late.Stop()
	id := sandbox.NewID()
	if err := s.d.hold(id); err != nil {
		return nil, err
	}
	spec := driver.Spec{ID: id, Root: k.root, Hostname: string(id), Limits: k.limits}
	if sh, err = s.d.newHeldShell(ctx, spec, k.guest, st); err != nil {
		s.d.forget(id)
		return nil, err
	}
	if err := st.hurry(); err != nil {
		s.endAll([]*shell{sh})
		return nil, err
	}
	return sh, nil
}

// unclaim takes a shell that is being started out of those that nobody waits for; false
// if somebody does.
func (w *demand) unclaim(st *starting) bool {
	i := slices.Index(w.starting, st)
	if i < 0 {
		return false
	}
	w.starting = slices.Delete(w.starting, i, i+1)
	return true
}

// join waits for a shell that is being started ahead, which becomes urgent. It is nil
// if there is none that nobody waits for, or if it has come to nothing.
func (s *shelf) join(ctx context.Context, k kind) (*shell, error) {
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	w := s.kinds[k]
	if w == nil || len(w.ready)+len(w.starting) == 0 {
		s.mu.Unlock()
		return nil, nil
	}
	if sh := w.pick(); sh != nil { // it has become ready meanwhile
		s.mu.Unlock()
		return sh, nil
	}
	st := w.starting[0] // the one that has come furthest
	w.starting = w.starting[1:]
	s.mu.Unlock()
	if err := st.hurry(); err != nil {
		s.config.Logger.Warn("hurry an engine that starts", "error", err)
	}
	select {
	case sh := <-st.out:
		return sh, nil
	case <-ctx.Done():
		s.leave(k, st)
		return nil, context.Cause(ctx)
	}
}

// leave gives back what join has claimed.
func (s *shelf) leave(k kind, st *starting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case sh := <-st.out:
		if sh != nil {
			s.put(k, sh)
		}
		return
	default:
	}
	if w := s.kinds[k]; w != nil {
		w.starting = append(w.starting, st)
		return
	}
	s.kinds[k] = &demand{starting: []*starting{st}}
}
