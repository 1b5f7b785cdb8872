package gvisor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var _ driver.Reducer = (*Driver)(nil)

// reducingNote is there while a Reduce is under way; what it writes lies in reduced
// until the note of what is put aside says that it counts.
func (p place) reducingNote() string { return p.dir + "/reducing" }
func (p place) reduced() string      { return p.dir + "/reduced" }

// Reduce implements driver.Reducer. The tree of the layer's names is in the engine's
// memory, so an engine loads what was saved, with every task stopped before it has
// begun, and writes the tree as a stop does.
func (d *Driver) Reduce(ctx context.Context, spec driver.Spec, b []byte) ([]byte, error) {
	const op = "reduce"
	s, err := d.holdSaved(spec, b)
	if err != nil {
		return nil, fault(op, spec.ID, err)
	}
	defer d.forget(spec.ID)
	p := d.place(spec.ID)
	if _, err := os.Stat(p.saved()); err != nil {
		return nil, fault(op, spec.ID, &sandbox.Error{Op: "find what was saved", Kind: sandbox.NotFound, Err: err})
	}
	if s.Keep == driver.KeepDisk {
		return b, nil
	}
	if err := ctx.Err(); err != nil {
		return nil, fault(op, spec.ID, err)
	}
	if err := s.check(p); err != nil {
		return nil, fault(op, spec.ID, err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTime)
	defer cancel()
	err = d.writeReduced(ctx, spec, s)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
		defer cancel()
		return nil, fault(op, spec.ID, errors.Join(err, d.undoReduce(undo, spec.ID)))
	}
	s.Keep = driver.KeepDisk
	if s.Sums, err = sumFolder(p.reduced()); err != nil {
		return nil, fault(op, spec.ID, errors.Join(err, d.undoReduce(ctx, spec.ID)))
	}
	out, err := json.Marshal(s)
	if err == nil {
		err = writeWhole(p.asideNote(), out) // from here on the other bytes are void
	}
	if err == nil {
		err = p.finishReduce()
	}
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Internal, ID: spec.ID, Err: err}
	}
	return out, nil
}

// writeReduced writes what KeepDisk keeps beside what was saved. Its engine has ended
// when it returns nil.
func (d *Driver) writeReduced(ctx context.Context, spec driver.Spec, s saved) error {
	p := d.place(spec.ID)
	if err := writeWhole(p.reducingNote(), nil); err != nil {
		return err
	}
	if err := removeAll(p.stateNote(), p.engine(), p.pidFile(), p.panicLog(), p.reduced()); err != nil {
		return err
	}
	sh, err := d.shellFor(ctx, spec, s.State.Guest)
	if err != nil {
		return err
	}
	defer sh.close()
	if err := sh.loadStill(ctx, p.saved()); err != nil {
		return &sandbox.Error{Op: "load", Kind: sandbox.Unavailable, Err: err}
	}
	cmd, err := d.command(ctx, p, nil, "fscheckpoint", "--leave-running", "--image-path="+p.reduced(), string(spec.ID))
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("save: %w: %s", err, tail(bytes.TrimSpace(out), 600))
	}
	return errors.Join(d.endStill(ctx, spec.ID), p.sync())
}

// endStill ends an engine of which nothing ran. Its bundle stays, as after a pause.
func (d *Driver) endStill(ctx context.Context, id sandbox.ID) error {
	p := d.place(id)
	if err := d.groups.group(string(id)).destroy(ctx); err != nil {
		return err
	}
	p.unpin()
	return removeAll(p.stateNote(), p.engine(), p.pidFile(), p.panicLog())
}

// undoReduce takes back what did not come to count.
func (d *Driver) undoReduce(ctx context.Context, id sandbox.ID) error {
	p := d.place(id)
	if err := d.endStill(ctx, id); err != nil {
		return err
	}
	return removeAll(p.reduced(), p.reducingNote())
}

// finishReduce puts what counts in the place of what was saved. It can be done again.
func (p place) finishReduce() error {
	if _, err := os.Stat(p.reduced()); err == nil {
		if err := removeAll(p.saved()); err != nil {
			return err
		}
		if err := os.Rename(p.reduced(), p.saved()); err != nil {
			return err
		}
	}
	if err := p.sync(); err != nil {
		return err
	}
	return removeAll(p.reducingNote())
}

// afterReduce settles a Reduce that was cut short: nothing of the machine ran.
func (d *Driver) afterReduce(ctx context.Context, id sandbox.ID, n notes) (driver.Found, error) {
	p := d.place(id)
	if err := d.awaitCommands(ctx, p); err != nil {
		return driver.Found{}, err
	}
	var err error
	if n.saved.Keep == driver.KeepDisk {
		if err = d.endStill(ctx, id); err == nil {
			err = p.finishReduce()
		}
	} else {
		err = d.undoReduce(ctx, id)
	}
	return driver.Found{Saved: n.aside}, err
}
