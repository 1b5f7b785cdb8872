package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/driver/gvisor/runsc/called"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// Bounds on the waits of Find.
const (
	answerTime = 30 * time.Second      // for a guest that is to answer
	endingTime = 10 * time.Second      // for an engine to end after its save
	lookEvery  = 20 * time.Millisecond // at what is waited for
)

var _ driver.Finder = (*Driver)(nil)

// Find implements driver.Finder. What it knows it has from the notes, and from
// what lives.
func (d *Driver) Find(ctx context.Context, id sandbox.ID) (driver.Found, error) {
	const op = "find"
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return driver.Found{}, fault(op, id, err)
	}
	if m := d.heldMachine(id); m != nil {
		return driver.Found{State: m.State()}, nil
	}
	if err := d.hold(id); err != nil {
		return driver.Found{}, fault(op, id, err)
	}
	defer d.forget(id)
	found, err := d.find(ctx, id)
	if err == nil && found.State == nil && found.Saved == nil {
		if err = d.destroy(ctx, id); err == nil {
			err = &sandbox.Error{Kind: sandbox.NotFound, Err: errGone}
		}
	}
	return found, fault(op, id, err)
}

func (d *Driver) heldMachine(id sandbox.ID) *machine {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held[id]
}

// find returns an empty result if there is nothing that could be taken up.
func (d *Driver) find(ctx context.Context, id sandbox.ID) (driver.Found, error) {
	p := d.place(id)
	n, err := p.readNotes()
	if err != nil {
		return driver.Found{}, err
	}
	switch {
	case n.aside == nil:
		return d.foundAlive(n.state)
	case n.reducing:
		return d.afterReduce(ctx, id, n)
	case n.resuming:
		return d.afterResume(ctx, id, n)
	case n.state != nil:
		return d.afterSave(ctx, id, n)
	}
	return driver.Found{Saved: n.aside}, nil
}

// foundAlive says what there is of a machine that runs or does not.
func (d *Driver) foundAlive(s *state) (driver.Found, error) {
	if s == nil || !s.Process.lives() {
		return driver.Found{}, nil
	}
	b, err := json.Marshal(s)
	return driver.Found{State: b}, err
}

// lives reports whether it is the same process still, and has not ended.
func (p process) lives() bool {
	f, err := p.open()
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// afterSave settles a pause that was cut short: the engine may be saving yet, it
// may have ended with all on the disk, or never have begun.
func (d *Driver) afterSave(ctx context.Context, id sandbox.ID, n notes) (driver.Found, error) {
	p := d.place(id)
	if here, err := identify(os.Getpid()); err != nil || here.Boot != n.state.Process.Boot {
		return driver.Found{}, err // the host went down in the midst of the save
	}
	if err := d.awaitCommands(ctx, p); err != nil {
		return driver.Found{}, err
	}
	answers, err := d.endsOrAnswers(ctx, id, *n.state)
	if err != nil {
		return driver.Found{}, err
	}
	if answers { // the save has failed or never begun: undo what it did
		if err := removeAll(p.saved(), p.asideNote()); err != nil {
			return driver.Found{}, err
		}
		return d.foundAlive(n.state)
	}
	if b, err := os.ReadFile(p.panicLog()); err == nil && len(bytes.TrimSpace(b)) > 0 {
		return driver.Found{}, nil
	}
	if _, err := os.Stat(p.saved()); err != nil {
		return driver.Found{}, nil // it ended before anything was saved
	}
	if err := d.groups.group(string(id)).destroy(ctx); err != nil {
		return driver.Found{}, err
	}
	if err := removeAll(p.stateNote()); err != nil {
		return driver.Found{}, err
	}
	return driver.Found{Saved: n.aside}, p.sync()
}

// afterResume settles a resume that was cut short. A machine that has come to
// life is taken up: its layer is no longer the one that was saved.
func (d *Driver) afterResume(ctx context.Context, id sandbox.ID, n notes) (driver.Found, error) {
	p := d.place(id)
	if err := d.awaitCommands(ctx, p); err != nil {
		return driver.Found{}, err
	}
	if n.state != nil {
		s := *n.state
		if s.Process.PID == 0 {
			s.Process = d.engineOf(id)
		}
		if answers, err := d.endsOrAnswers(ctx, id, s); err != nil {
			return driver.Found{}, err
		} else if answers {
			if err := p.noteState(s); err != nil {
				return driver.Found{}, err
			}
			if err := removeAll(p.asideNote(), p.saved(), p.resumingNote()); err != nil {
				return driver.Found{}, err
			}
			return d.foundAlive(&s)
		}
	}
	if err := d.groups.group(string(id)).destroy(ctx); err != nil {
		return driver.Found{}, err
	}
	if p.begun() { // and has died since
		return driver.Found{}, nil
	}
	if err := removeAll(p.stateNote(), p.resumingNote()); err != nil {
		return driver.Found{}, err
	}
	if _, err := os.Stat(p.saved()); err != nil {
		return driver.Found{}, nil
	}
	return driver.Found{Saved: n.aside}, nil
}

// engineOf identifies a machine's engine by the file that names it, if that
// process is in the machine's cgroup.
func (d *Driver) engineOf(id sandbox.ID) process {
	b, err := os.ReadFile(d.place(id).pidFile())
	if err != nil {
		return process{}
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		return process{}
	}
	members, err := d.groups.group(string(id)).processes()
	if err != nil {
		return process{}
	}
	for _, m := range members {
		if m == pid {
			found, err := identify(pid)
			if err == nil {
				return found
			}
		}
	}
	return process{}
}

// endsOrAnswers waits until the engine has ended (false) or its guest answers
// (true). One that does neither is an error.
func (d *Driver) endsOrAnswers(ctx context.Context, id sandbox.ID, s state) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	for {
		if s.Process.PID == 0 || !s.Process.lives() {
			return false, nil
		}
		if d.place(id).callCtx(ctx, id, "containerManager.Ready", nil) == nil {
			return false, nil // it waits yet for what it is to run
		}
		m, err := d.recover(ctx, id, s)
		if errors.Is(err, errGone) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		err = greet(ctx, m)
		m.release()
		if err == nil {
			return true, nil
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return false, fmt.Errorf("its guest does not answer: %w", err)
		}
	}
}

// greet asks the guest who it is.
func greet(ctx context.Context, m *machine) error {
	ctx, cancel := context.WithTimeout(ctx, endingTime)
	defer cancel()
	c := guestclient.New(m.Dial)
	defer c.Close()
	_, err := c.Hello(ctx)
	return err
}

// awaitCommands waits for the engine's commands on a machine that an earlier
// process has left.
func (d *Driver) awaitCommands(ctx context.Context, p place) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	for commandRuns(p) {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return fmt.Errorf("a command of the engine does not end: %w", context.Cause(ctx))
		}
	}
	return nil
}

// commandRuns reports whether a command that saves, loads or starts works on a
// machine.
func commandRuns(p place) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well-formed
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		args := bytes.Split(b, []byte{0})
		if string(args[0]) != called.Name || !bytes.Contains(b, []byte(p.dir+"/")) {
			continue
		}
		for _, verb := range []string{"checkpoint", "fscheckpoint", "restore", "run", "shell"} {
			for _, a := range args[1:] {
				if string(a) == verb {
					return true
				}
			}
		}
	}
	return false
}
