package fake

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var _ driver.Reducer = (*Driver)(nil)

// Reduce implements driver.Reducer: the processes that stand still are ended, and the
// folder stays.
func (d *Driver) Reduce(ctx context.Context, spec driver.Spec, b []byte) ([]byte, error) {
	out, err := d.reduce(ctx, spec, b)
	if err != nil {
		return nil, &sandbox.Error{Op: "reduce", ID: spec.ID, Err: err}
	}
	return out, nil
}

func (d *Driver) reduce(ctx context.Context, spec driver.Spec, b []byte) ([]byte, error) {
	s, kept, err := d.takeSaved(ctx, spec, b)
	if err != nil {
		return nil, err
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.held, s.ID)
	}()
	if s.Keep == driver.KeepDisk {
		return b, nil
	}
	s.Keep, s.Token = driver.KeepDisk, rand.Text()
	out, err := json.Marshal(s)
	if err != nil {
		return nil, sandbox.Errorf("", sandbox.Internal, "%w", err)
	}
	if err := writeMark(d.mark(s.ID), out); err != nil {
		return nil, err
	}
	d.mu.Lock()
	delete(d.aside, s.ID)
	d.mu.Unlock()
	return out, kept.in.halt(s.ID)
}

// ReduceFrom implements driver.Reducer. A captured folder holds a disk alone, so a
// machine that is made of it and put aside at once has run nothing of it.
func (d *Driver) ReduceFrom(ctx context.Context, spec driver.Spec, dir string) ([]byte, error) {
	m, err := d.Restore(ctx, spec, dir)
	if err != nil {
		return nil, err
	}
	b, err := d.Pause(ctx, m, driver.KeepDisk)
	if err != nil {
		return nil, errors.Join(err, m.Stop(context.WithoutCancel(ctx)))
	}
	return b, nil
}
