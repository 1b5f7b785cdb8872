package gvisor

import (
	"bytes"
	"context"
	"fmt"

	"github.com/berth-dev/berth/driver"
)

// ReduceFrom implements driver.Reducer. Until there is the note of what is put aside
// nothing counts: whoever finds the folder without it takes it for what is left of a
// machine that has ended.
func (d *Driver) ReduceFrom(ctx context.Context, spec driver.Spec, dir string) ([]byte, error) {
	const op = "reduce"
	img, err := d.readImage(dir)
	if err != nil {
		return nil, fault(op, spec.ID, err)
	}
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	c, err := d.newChild(ctx, spec, img, newStages())
	if err != nil {
		return nil, fault(op, spec.ID, err)
	}
	b, err := c.lay(ctx, img)
	if err != nil {
		return nil, fault(op, spec.ID, c.fail(ctx, err))
	}
	d.forget(spec.ID)
	return b, nil
}

// lay makes what is there of a child one that is put aside with its disk alone.
func (c *child) lay(ctx context.Context, img image) ([]byte, error) {
	if img.about.Keep == driver.KeepMemory {
		if err := c.enshell(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.cloneLayer(img); err != nil {
		return nil, err
	}
	if err := c.writeTree(ctx, img); err != nil {
		return nil, err
	}
	c.close()
	if err := c.d.endStill(ctx, c.spec.ID); err != nil {
		return nil, err
	}
	b, err := c.place.sumSaved(saved{Version: stateVersion, Keep: driver.KeepDisk, State: state{Version: stateVersion, Guest: c.state.Guest}})
	if err != nil {
		return nil, err
	}
	return b, c.place.sync()
}

// writeTree puts the tree of the layer's names where a stop does.
func (c *child) writeTree(ctx context.Context, img image) error {
	if img.about.Keep == driver.KeepDisk {
		return cloneFolder(c.place.saved(), img.engine)
	}
	if err := c.shell.loadStill(ctx, img.engine); err != nil {
		return err
	}
	cmd, err := c.d.command(ctx, c.place, nil, "fscheckpoint", "--leave-running", "--image-path="+c.place.saved(), string(c.spec.ID))
	if err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("save: %w: %s", err, tail(bytes.TrimSpace(out), 600))
	}
	return nil
}
