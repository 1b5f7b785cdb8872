package gvisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/sandbox"
)

// child is a machine that is being made of an image. What is made is undone by
// destroy, as it is with a machine.
type child struct {
	d     *Driver
	spec  driver.Spec // its limits are those that the engine is told
	place place
	group *group
	ns    *netgw.Namespace
	state state
	shell *shell // what loads the memory; nil before there is one, and with KeepDisk
	fed   *feeding
	trace *stages
}

// Restore implements driver.Snapshotter.
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Machine, error) {
	return d.restore(ctx, spec, dir, nil)
}

// restore is Restore, or RestoreEarly if there is a feed.
func (d *Driver) restore(ctx context.Context, spec driver.Spec, dir string, feed driver.Feed) (driver.Machine, error) {
	const op = "restore"
	defer d.shelf.yield()()
	img, err := d.readImage(dir)
	if err != nil {
		return nil, fault(op, spec.ID, err)
	}
	img.feed = feed
	c, err := d.newChild(ctx, spec, img, newStages())
	if err != nil {
		return nil, fault(op, spec.ID, err)
	}
	m, err := c.hatch(ctx, img, func() {})
	if err != nil {
		return nil, fault(op, spec.ID, err)
	}
	return m, nil
}

// newChild makes all that a machine needs around its engine.
func (d *Driver) newChild(ctx context.Context, spec driver.Spec, img image, trace *stages) (c *child, err error) {
	defer trace.step("prepare " + string(spec.ID))()
	if err := check(spec); err != nil {
		return nil, err
	}
	if spec.Limits, err = img.fit(spec.Limits); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.hold(spec.ID); err != nil {
		return nil, err
	}
	c = &child{d: d, spec: spec, place: d.place(spec.ID), group: d.groups.group(string(spec.ID)), trace: trace}
	if err := os.Mkdir(c.place.dir, 0o700); err != nil {
		d.forget(spec.ID)
		if errors.Is(err, fs.ErrExist) {
			err = sandbox.Errorf("make folder", sandbox.Conflict, "the machine is there already")
		}
		return nil, err
	}
	if err := c.furnish(ctx, img); err != nil {
		return nil, c.fail(ctx, err)
	}
	return c, nil
}

// fit returns the limits of a child that asks for some. What the memory that was
// captured holds already stays as it was.
func (i *image) fit(l sandbox.Limits) (sandbox.Limits, error) {
	small := func(what string, has, needs int64) error {
		return &sandbox.Error{Op: "check limits", Kind: sandbox.Exhausted, Err: fmt.Errorf("%s is %d MiB, and what was captured holds %d", what, has>>20, needs>>20),
			Hint: "ask for as much as the sandbox had that it is made from"}
	}
	if i.about.Memory > l.MemoryBytes {
		return l, small("memory", l.MemoryBytes, i.about.Memory)
	}
	if i.about.Disk > l.DiskBytes {
		return l, small("the disk", l.DiskBytes, i.about.Disk)
	}
	if i.about.Keep == driver.KeepMemory {
		was := i.about.Limits
		l.DiskBytes, l.Processes, l.OpenFiles, l.Files = was.DiskBytes, was.Processes, was.OpenFiles, was.Files
	}
	return l, nil
}

// fail undoes what is there of a child, although ctx may have ended.
func (c *child) fail(ctx context.Context, err error) error {
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	c.fed.stop()
	c.close()
	err = errors.Join(err, c.d.destroy(undo, c.spec.ID))
	c.d.forget(c.spec.ID)
	return err
}

// close lets go of what this process holds of a child.
func (c *child) close() {
	if c.shell != nil {
		c.shell.close()
	} else if c.ns != nil {
		c.ns.Close()
	}
}

// furnish makes what is around the engine: with memory to load that is an engine
// that waits, if there is one.
func (c *child) furnish(ctx context.Context, img image) (err error) {
	c.state = state{Version: stateVersion}
	if c.state.Guest, err = c.guestImage(ctx, img); err != nil {
		return err
	}
	if img.about.Keep == driver.KeepMemory {
		c.shell, err = c.d.shelved(ctx, c.spec, c.state.Guest)
		return errors.Join(err, c.place.noteState(c.state))
	}
	if err := c.group.make(wall(c.spec.Limits)); err != nil {
		return fmt.Errorf("make cgroup: %w", err)
	}
	if c.ns, err = netgw.NewNamespace(); err != nil {
		return fmt.Errorf("make namespace: %w", err)
	}
	if err := writeBundle(c.place, c.spec, filepath.Join(c.d.dir, c.state.Guest), c.ns.Path()); err != nil {
		return fmt.Errorf("write bundle: %w", err)
	}
	return c.place.noteState(c.state)
}

// guestImage names the image of the guest, beneath the driver's folder. The one
// that is in the captured memory must be there as a file too. A captured folder
// has it; that one serves this child alone, for nobody vouches for it.
func (c *child) guestImage(ctx context.Context, img image) (string, error) {
	if img.about.Keep == driver.KeepDisk {
		path, err := c.d.guestImage(ctx)
		return filepath.Base(path), err
	}
	_, err := os.Stat(filepath.Join(c.d.dir, img.inner.Guest))
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return img.inner.Guest, err
	}
	own := filepath.Join(string(c.spec.ID), guestFile)
	return own, cloneFile(filepath.Join(c.d.dir, own), img.guest)
}

// hatch makes the child a machine with what an image holds. It calls loaded once that is
// in its engine, if it comes that far.
func (c *child) hatch(ctx context.Context, img image, loaded func()) (*machine, error) {
	ctx, cancel := context.WithTimeout(ctx, bootTime)
	defer cancel()
	m, err := c.live(ctx, img, loaded)
	if ferr := c.fed.failed(); ferr != nil && err != nil {
		err = ferr // which all else follows from
	}
	if err != nil {
		return nil, c.fail(ctx, err)
	}
	c.close()
	c.d.adopt(m)
	return m, nil
}

func (c *child) live(ctx context.Context, img image, loaded func()) (m *machine, err error) {
	if img.about.Keep == driver.KeepMemory {
		if err := c.enshell(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.cloneLayer(img); err != nil {
		return nil, err
	}
	if img.about.Keep == driver.KeepDisk {
		m, err = c.boot(ctx, img)
	} else {
		m, err = c.load(ctx, img)
	}
	if err != nil {
		return nil, err
	}
	loaded()
	made := m
	defer func() {
		if err != nil {
			made.release()
		}
	}()
	ctx, cancel := c.fed.during(ctx)
	defer cancel()
	if img.about.Keep == driver.KeepMemory {
		if err := c.identify(ctx, m); err != nil {
			return nil, c.place.crashed(err)
		}
	}
	if err := c.place.noteState(m.state); err != nil {
		return nil, err
	}
	if c.fed != nil {
		m.feed(c.fed)
	}
	// Late, since a start within the share would take several times as long.
	if err := c.group.setCPU(c.spec.Limits.CPUMilli); err != nil {
		return nil, fmt.Errorf("limit processor time: %w", err)
	}
	return m, nil
}

// cloneLayer gives the child the image's layer, if it has not been put there.
func (c *child) cloneLayer(img image) error {
	defer c.trace.step("clone layer " + string(c.spec.ID))()
	if img.about.Keep == driver.KeepDisk {
		return errors.Join(cloneFile(c.place.layer(), img.layer), gather(c.place.layer(), img.bases))
	}
	shared, err := c.shareLayer(img)
	if err != nil || shared {
		return err
	}
	if img.layer != c.place.layer() {
		if err := cloneFile(c.place.layer(), img.layer); err != nil {
			return err
		}
	}
	return c.place.linkBases(img.bases)
}

// shareLayer makes the image's layer a base of the child's, if that spares a copy.
func (c *child) shareLayer(img image) (bool, error) {
	if !img.frozen || c.d.clones {
		return false, nil
	}
	size, err := stored(img.layer)
	if err != nil || size < freezeFrom {
		return false, err
	}
	return os.Link(img.layer, c.place.basePath(0)) == nil, nil // elsewhere it is copied
}

// boot starts the engine with a new guest on the image's disk.
func (c *child) boot(ctx context.Context, img image) (*machine, error) {
	if err := c.d.boot(ctx, c.place, c.spec, c.group, &c.state, "--fs-restore-image-path="+img.engine); err != nil {
		return nil, err
	}
	return c.d.attach(c.spec.ID, c.state, c.ns)
}

// load lets the engine load the memory, and attaches to it meanwhile.
func (c *child) load(ctx context.Context, img image) (*machine, error) {
	defer c.trace.step("load " + string(c.spec.ID))()
	c.state.Secret, c.state.Process, c.ns = img.inner.Secret, c.shell.process, c.shell.ns
	loaded := make(chan error, 1)
	go func() { loaded <- c.loadShell(ctx, img) }() // waited for below
	m, err := c.d.attach(c.spec.ID, c.state, c.ns)
	if err := errors.Join(err, <-loaded); err != nil {
		if m != nil {
			m.awaitCrash(ctx, err)
			m.release()
		}
		return nil, c.place.crashed(err)
	}
	return m, nil
}

// loadShell lets the engine load the memory, all of it or what is there.
func (c *child) loadShell(ctx context.Context, img image) error {
	if img.feed == nil {
		return c.shell.load(ctx, img.engine)
	}
	err := writeWhole(c.place.lackingNote(), nil)
	if err == nil {
		c.fed, err = c.shell.loadFed(ctx, img.engine, img.feed)
	}
	return err
}

// enshell starts the engine ahead of what it is to load, if none waits.
func (c *child) enshell(ctx context.Context) (err error) {
	if c.shell != nil {
		return nil
	}
	defer c.trace.step("shell " + string(c.spec.ID))()
	c.shell, err = c.d.soonest(ctx, c.spec, c.state.Guest)
	return err
}

// identify gives the child's guest its own name and secret.
func (c *child) identify(ctx context.Context, m *machine) error {
	defer c.trace.step("identify " + string(c.spec.ID))()
	var own guestapi.Secret
	rand.Read(own[:])
	if err := m.guest().Identify(ctx, string(c.spec.ID), own, c.spec.Hostname, c.spec.Limits.FuseMounts); err != nil {
		return err
	}
	m.state.Secret = own
	return nil
}
