package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// saveTime bounds one save or load, which once begun is not ended by the
// caller's context: half of one serves nobody.
const saveTime = 10 * time.Minute

// spare is the room that must be left on the disk after a save.
const spare = 64 << 20

// saved is what Resume needs of a machine that was put aside.
type saved struct {
	Version int         `json:"version"`
	Keep    driver.Keep `json:"keep"`
	State   state       `json:"state"`          // of the machine that was; its process is gone
	Sums    sums        `json:"sums,omitempty"` // of what the engine wrote
}

var _ driver.Pauser = (*Driver)(nil)

// Pause implements driver.Pauser. The layer's file stays where it is; what is
// saved beside it is the memory, or with KeepDisk the layer's tree alone.
func (d *Driver) Pause(ctx context.Context, dm driver.Machine, keep driver.Keep) ([]byte, error) {
	const op = "pause"
	m, ok := dm.(*machine)
	if !ok || m.driver != d {
		return nil, sandbox.Errorf(op, sandbox.Invalid, "the machine is of another driver")
	}
	if keep != driver.KeepMemory && keep != driver.KeepDisk {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Invalid, ID: m.id, Err: fmt.Errorf("%q cannot be kept", keep)}
	}
	if err := ctx.Err(); err != nil {
		return nil, &sandbox.Error{Op: op, ID: m.id, Err: err}
	}
	if keep == driver.KeepMemory {
		if err := m.whole(ctx); err != nil {
			return nil, fault(op, m.id, err)
		}
	}
	if err := m.room(m.place.dir, driver.KeepMemory); err != nil {
		return nil, fault(op, m.id, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	s := saved{Version: stateVersion, Keep: keep, State: m.state}
	b, err := json.Marshal(s)
	if err != nil {
		return nil, fault(op, m.id, err)
	}
	if err := errors.Join(m.place.noteState(m.state), writeWhole(m.place.asideNote(), b)); err != nil {
		return nil, fault(op, m.id, errors.Join(err, removeAll(m.place.asideNote())))
	}
	// Before the engine ends by itself, which is how a save ends.
	m.expect(true)
	if err := m.save(ctx, keep); err != nil {
		m.expect(false)
		return nil, fault(op, m.id, errors.Join(err, removeAll(m.place.asideNote())))
	}
	if err := m.end(ctx); err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Internal, ID: m.id, Err: err}
	}
	if keep == driver.KeepMemory {
		m.expectWake()
	}
	if b, err = m.place.sumSaved(s); err == nil {
		err = errors.Join(removeAll(m.place.stateNote(), m.place.lackingNote()), m.place.sync())
	}
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Internal, ID: m.id, Err: err}
	}
	return b, nil
}

// expectWake lets an engine start for the time when m is taken up again.
func (m *machine) expectWake() {
	if k, err := m.place.kind(m.state.Guest); err == nil {
		m.driver.shelf.expect(k)
	} // else it starts when it is wanted
}

// room refuses a save to a folder whose disk has no room for it, before it has
// begun.
func (m *machine) room(dir string, keep driver.Keep) error {
	need := int64(0)
	if keep == driver.KeepMemory {
		var err error
		if need, err = m.toWrite(); err != nil {
			return err
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return &fs.PathError{Op: "look at the disk of", Path: dir, Err: err}
	}
	if free := int64(st.Bavail) * st.Bsize; free < need+spare {
		return &sandbox.Error{Op: "check disk", Kind: sandbox.Exhausted, Err: fmt.Errorf("%d MiB are free and %d needed: %w", free>>20, (need+spare)>>20, unix.ENOSPC),
			Hint: "free space on the disk that holds the data directory"}
	}
	return nil
}

// save lets the engine write what is to be kept, after which it ends by itself.
// If it fails the machine runs on, and what was written is removed.
func (m *machine) save(ctx context.Context, keep driver.Keep) error {
	if err := os.RemoveAll(m.place.saved()); err != nil {
		return err
	}
	// The limits are for the guest, which stands still now: the pages of the
	// file that is written must not be charged against its memory, nor the time
	// against its share.
	limit, err := m.group.lift()
	if err != nil {
		return err
	}
	args := []string{"checkpoint", "--compression=none", "--image-path=" + m.place.saved(), string(m.id)}
	if keep == driver.KeepDisk {
		args = []string{"fscheckpoint", "--image-path=" + m.place.saved(), string(m.id)}
	}
	cmd, err := m.driver.command(ctx, m.place, nil, args...)
	if err != nil {
		return errors.Join(err, limit())
	}
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	err = fmt.Errorf("save: %w: %s", err, tail(bytes.TrimSpace(out), 600))
	return errors.Join(err, limit(), os.RemoveAll(m.place.saved()))
}

// end waits for the engine's end after a save and removes all of the machine
// that is not a file.
func (m *machine) end(ctx context.Context) error {
	if err := m.group.destroy(ctx); err != nil {
		return err
	}
	m.place.unpin()
	if _, err := m.Wait(ctx); err != nil {
		return err
	}
	m.release()
	m.driver.forgetMachine(m)
	return nil
}

// sync makes the files of a machine that was put aside survive the loss of
// power.
func (p place) sync() error {
	return filepath.WalkDir(p.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !(e.IsDir() || e.Type().IsRegular()) {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return f.Sync()
	})
}

// Resume implements driver.Pauser.
func (d *Driver) Resume(ctx context.Context, spec driver.Spec, b []byte) (driver.Machine, error) {
	const op = "resume"
	s, err := d.holdSaved(spec, b)
	if err != nil {
		return nil, fault(op, spec.ID, err)
	}
	m, err := d.resume(ctx, spec, s)
	if err != nil {
		d.forget(spec.ID)
		return nil, fault(op, spec.ID, err)
	}
	d.adopt(m)
	return m, nil
}

// holdSaved reads what a machine was put aside with, and holds its name.
func (d *Driver) holdSaved(spec driver.Spec, b []byte) (saved, error) {
	s, err := readSaved(b)
	if err == nil {
		err = check(spec)
	}
	if err == nil {
		err = d.hold(spec.ID)
	}
	return s, err
}

func (d *Driver) resume(ctx context.Context, spec driver.Spec, s saved) (*machine, error) {
	p := d.place(spec.ID)
	if _, err := os.Stat(p.saved()); err != nil {
		return nil, &sandbox.Error{Op: "find what was saved", Kind: sandbox.NotFound, Err: err}
	}
	if err := errors.Join(ctx.Err(), s.check(p)); err != nil {
		return nil, err
	}
	if err := p.beginResume(); err != nil {
		return nil, err
	}
	if s.Keep == driver.KeepDisk {
		image, err := d.guestImage(ctx)
		if err != nil {
			return nil, err
		}
		s.State.Guest = filepath.Base(image)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	m, err := d.wake(ctx, spec, s)
	if err != nil {
		return nil, d.putBack(ctx, spec.ID, err)
	}
	// It runs, and has changed its layer: what was saved is void, whatever of it
	// cannot be removed now. The next pause or the end of the machine does that.
	_ = removeAll(p.asideNote(), p.saved(), p.resumingNote())
	return m, nil
}

// beginResume says that a resume is under way. What the engine knew of the machine that
// was goes before that: the word that it had begun would be taken for this one's.
func (p place) beginResume() error {
	if err := removeAll(p.stateNote(), p.engine(), p.bundle(), p.pidFile(), p.panicLog()); err != nil {
		return err
	}
	return writeWhole(p.resumingNote(), nil)
}

// putBack ends a machine that could not be taken up, for why. What was saved serves
// again if it has not begun to run; else it is NotFound.
func (d *Driver) putBack(ctx context.Context, id sandbox.ID, why error) error {
	p := d.place(id)
	if err := d.groups.group(string(id)).destroy(ctx); err != nil {
		return errors.Join(why, err)
	}
	if !p.begun() {
		return errors.Join(why, removeAll(p.stateNote(), p.resumingNote()))
	}
	err := &sandbox.Error{Kind: sandbox.NotFound, Err: fmt.Errorf("it had begun to run, so what was saved is void: %w", why),
		Hint: "create another, or one from a snapshot"}
	return errors.Join(err, d.destroy(ctx, id))
}

// wake makes a machine of what was put aside.
func (d *Driver) wake(ctx context.Context, spec driver.Spec, s saved) (*machine, error) {
	p := d.place(spec.ID)
	if s.Keep == driver.KeepDisk { // the present guest on the disk that was kept
		if err := p.gatherBases(); err != nil {
			return nil, err
		}
		return d.launch(spec, s.State, func(g *group, st *state) error {
			return d.boot(ctx, p, spec, g, st, "--fs-restore-image-path="+p.saved())
		})
	}
	sh, err := d.shellFor(ctx, spec, s.State.Guest)
	if err != nil {
		return nil, err
	}
	defer sh.close()
	s.State.Process = sh.process
	if err := p.noteState(s.State); err != nil {
		return nil, err
	}
	// All that can fail otherwise comes before anything runs: until then the save serves.
	m, err := d.attach(spec.ID, s.State, sh.ns)
	if err != nil {
		return nil, err
	}
	err = sh.loadNoted(ctx, p.saved())
	if err != nil {
		m.awaitCrash(ctx, err)
		err = &sandbox.Error{Op: "load", Kind: sandbox.Unavailable, Err: err}
	} else if err = sh.group.setCPU(spec.Limits.CPUMilli); err != nil { // late, as in settle
		err = fmt.Errorf("limit processor time: %w", err)
	}
	if err != nil {
		m.release()
		return nil, err
	}
	return m, nil
}

// Discard implements driver.Pauser.
func (d *Driver) Discard(ctx context.Context, id sandbox.ID) error {
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return fault("discard", id, err)
	}
	if err := d.hold(id); err != nil {
		return fault("discard", id, err)
	}
	defer d.forget(id)
	return fault("discard", id, d.destroy(ctx, id))
}
