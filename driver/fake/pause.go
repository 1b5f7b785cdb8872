package fake

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var (
	_ driver.Pauser  = (*Driver)(nil)
	_ driver.Finder  = (*Driver)(nil)
	_ driver.Resizer = (*Driver)(nil)
)

// markSuffix ends the name of the file that says what was put aside, beside the
// folder.
const markSuffix = ".aside"

// saved is what Resume needs. Its token serves once.
type saved struct {
	Version int         `json:"version"`
	ID      sandbox.ID  `json:"id"`
	Keep    driver.Keep `json:"keep"`
	Token   string      `json:"token"`
}

// aside is what this process holds of a machine that was put aside with its
// memory.
type aside struct {
	token string
	in    *inside
}

// Pause implements driver.Pauser, in the way that the package's text confesses.
func (d *Driver) Pause(ctx context.Context, dm driver.Machine, keep driver.Keep) ([]byte, error) {
	const op = "pause"
	m, ok := dm.(*machine)
	if !ok || m.d != d || (keep != driver.KeepMemory && keep != driver.KeepDisk) {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "the machine is of another driver, or what to keep is unknown: %q", keep)
	}
	if err := ctx.Err(); err != nil {
		return nil, &sandbox.Error{Op: op, ID: m.id, Err: err}
	}
	m.ending.Lock()
	defer m.ending.Unlock()
	select {
	case <-m.done:
		return nil, &sandbox.Error{Op: op, ID: m.id, Err: errEnded()}
	default:
	}
	s := saved{Version: stateVersion, ID: m.id, Keep: keep, Token: rand.Text()}
	b, err := d.putAside(m, s)
	if err != nil {
		return nil, &sandbox.Error{Op: op, ID: m.id, Err: err}
	}
	m.exit = driver.Exit{Asked: true, Reason: "paused", At: time.Now()}
	m.clean = true
	close(m.done)
	return b, nil
}

// putAside takes what is kept out of a machine. A failure to stop the processes
// or to write the mark leaves it running.
func (d *Driver) putAside(m *machine, s saved) ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, sandbox.Errorf("", sandbox.Internal, "%w", err)
	}
	if s.Keep == driver.KeepMemory {
		if err := freeze(m.id); err != nil {
			return nil, errors.Join(err, thaw(m.id))
		}
	}
	if err := writeMark(d.mark(m.id), b); err != nil {
		return nil, errors.Join(err, thaw(m.id))
	}
	m.inner.cut()
	var kept *aside
	if s.Keep == driver.KeepMemory {
		kept = &aside{token: s.Token, in: m.inside}
	} else if err := m.inside.halt(m.id); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.held, m.id)
	if kept != nil {
		d.aside[m.id] = kept
	}
	return b, nil
}

// halt ends a guest and its processes, and leaves the folder.
func (in *inside) halt(id sandbox.ID) error {
	in.cancel()
	err := <-in.served
	return errors.Join(err, kill(context.Background(), id))
}

// writeMark writes the file so that it is there whole or not at all.
func writeMark(path string, b []byte) error {
	err := os.WriteFile(path+".new", b, 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return &sandbox.Error{Kind: sandbox.Internal, Err: err}
	}
	return nil
}

func (d *Driver) mark(id sandbox.ID) string { return filepath.Join(d.dir, string(id)+markSuffix) }

// isAside reports whether the id was put aside, by this process or another.
func (d *Driver) isAside(id sandbox.ID) bool {
	_, err := os.Lstat(d.mark(id))
	return err == nil
}

// Resume implements driver.Pauser.
func (d *Driver) Resume(ctx context.Context, spec driver.Spec, b []byte) (driver.Machine, error) {
	m, err := d.resume(ctx, spec, b)
	if err != nil {
		return nil, &sandbox.Error{Op: "resume", ID: spec.ID, Err: err}
	}
	return m, nil
}

func (d *Driver) resume(ctx context.Context, spec driver.Spec, b []byte) (*machine, error) {
	s, kept, err := d.takeSaved(ctx, spec, b)
	if err != nil {
		return nil, err
	}
	var m *machine
	if s.Keep == driver.KeepMemory {
		m = around(d, s.ID, kept.in)
		m.limits = spec.Limits
		m.inner.admit()
		err = thaw(s.ID)
	} else {
		m = around(d, s.ID, boot(d.folder(s.ID), spec))
	}
	if err == nil {
		err = m.greet(ctx)
	}
	return m, d.taken(s, m, kept, err)
}

// takeSaved reads what a machine was put aside with, and takes it up.
func (d *Driver) takeSaved(ctx context.Context, spec driver.Spec, b []byte) (s saved, kept *aside, err error) {
	if err = check(spec); err == nil {
		s, err = readSaved(spec.ID, b)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		kept, err = d.takeUp(s)
	}
	return s, kept, err
}

// takeUp reserves what the bytes stand for.
func (d *Driver) takeUp(s saved) (*aside, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed()
	}
	if _, ok := d.held[s.ID]; ok {
		return nil, sandbox.Errorf("", sandbox.Conflict, "the machine is there already")
	}
	b, err := os.ReadFile(d.mark(s.ID))
	if err != nil {
		return nil, &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("nothing is put aside: %w", err)}
	}
	if present, err := readSaved(s.ID, b); err != nil || present.Token != s.Token {
		return nil, errors.Join(sandbox.Errorf("", sandbox.NotFound, "the bytes are void: they have served already"), err)
	}
	kept := d.aside[s.ID]
	if s.Keep == driver.KeepMemory && kept == nil {
		return nil, sandbox.Errorf("", sandbox.NotFound, "its memory ended with the process that held it")
	}
	d.held[s.ID] = nil
	return kept, nil
}

// taken settles a resume: the machine is held, or what was kept is again aside.
func (d *Driver) taken(s saved, m *machine, kept *aside, err error) error {
	if err == nil {
		err = os.Remove(d.mark(s.ID))
	}
	if err != nil && m != nil {
		m.inner.cut()
		if s.Keep == driver.KeepMemory {
			err = errors.Join(err, freeze(s.ID))
		} else {
			err = errors.Join(err, m.halt(s.ID))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		delete(d.held, s.ID)
		return err
	}
	delete(d.aside, s.ID)
	d.held[s.ID] = m
	return nil
}

func readSaved(id sandbox.ID, b []byte) (saved, error) {
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return s, sandbox.Errorf("read what was saved", sandbox.Unsupported, "not of this driver: %w", err)
	}
	if s.Version != stateVersion || (s.Keep != driver.KeepMemory && s.Keep != driver.KeepDisk) {
		return s, sandbox.Errorf("read what was saved", sandbox.Unsupported, "unknown version %d", s.Version)
	}
	if s.ID != id {
		return s, sandbox.Errorf("read what was saved", sandbox.Invalid, "it is of %.20q", s.ID)
	}
	return s, nil
}

// Discard implements driver.Pauser.
func (d *Driver) Discard(ctx context.Context, id sandbox.ID) error {
	const op = "discard"
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return &sandbox.Error{Op: op, ID: id, Err: err}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.held[id]; ok {
		return &sandbox.Error{Op: op, ID: id, Kind: sandbox.Conflict, Err: errors.New("the machine is live")}
	}
	if err := d.clear(ctx, id); err != nil {
		return &sandbox.Error{Op: op, ID: id, Err: err}
	}
	return nil
}

// clear removes all that is left of a machine which is not held. The caller
// holds d.mu.
func (d *Driver) clear(ctx context.Context, id sandbox.ID) error {
	if kept := d.aside[id]; kept != nil {
		if err := kept.in.halt(id); err != nil {
			return err
		}
		delete(d.aside, id)
	}
	if err := wipe(ctx, d.folder(id), id); err != nil {
		return err
	}
	for _, f := range []string{d.mark(id), d.mark(id) + ".new"} {
		if err := os.RemoveAll(f); err != nil {
			return &sandbox.Error{Kind: sandbox.Internal, Err: err}
		}
	}
	return nil
}

// dropAsides ends what was put aside with its memory. The caller holds d.mu.
func (d *Driver) dropAsides() []error {
	var errs []error
	for id := range d.aside {
		if err := d.clear(context.Background(), id); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", id, err))
		}
	}
	return errs
}

// Find implements driver.Finder.
func (d *Driver) Find(ctx context.Context, id sandbox.ID) (driver.Found, error) {
	const op = "find"
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.held[id]; m != nil {
		return driver.Found{State: m.State()}, nil
	}
	if _, ok := d.held[id]; ok {
		return driver.Found{}, &sandbox.Error{Op: op, ID: id, Kind: sandbox.Conflict, Err: errors.New("it is being made")}
	}
	b, err := os.ReadFile(d.mark(id))
	if err == nil {
		var s saved
		if s, err = readSaved(id, b); err == nil && (s.Keep == driver.KeepDisk || d.aside[id] != nil) {
			return driver.Found{Saved: b}, nil
		}
	}
	if err := d.clear(ctx, id); err != nil {
		return driver.Found{}, &sandbox.Error{Op: op, ID: id, Err: err}
	}
	return driver.Found{}, &sandbox.Error{Op: op, ID: id, Kind: sandbox.NotFound, Err: errors.New("the machine ended with the process that made it")}
}

// Resize implements driver.Resizer: it notes the limits, which this driver does
// not apply.
func (d *Driver) Resize(ctx context.Context, dm driver.Machine, l sandbox.Limits) error {
	m, ok := dm.(*machine)
	if !ok || m.d != d {
		return sandbox.Errorf("resize", sandbox.Invalid, "the machine is of another driver")
	}
	if err := errors.Join(ctx.Err(), l.Check()); err != nil {
		return &sandbox.Error{Op: "resize", ID: m.id, Err: err}
	}
	m.usage.Lock()
	defer m.usage.Unlock()
	m.limits = l
	return nil
}
