// Package fake is a driver for tests: it serves the guest within this process,
// on a scratch folder.
//
// IT ISOLATES NOTHING. What a sandbox runs, runs on the host as the current
// user, with the host's programs, network and files in reach; only the file
// calls of the contract are confined to the scratch folder, and the folder that
// a process starts in is mapped beneath it. Limits and the template's root are
// not applied. Machines end with the process that made them.
//
// PAUSE KEEPS MEMORY IN NO FILE: the processes are stopped where they are, the
// guest stays in this process, and both end with it. No memory is freed. What is
// kept of the disk alone is kept as it should be.
package fake

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// Class is the isolation class of this driver.
const Class = "fake"

// Config says where the scratch folders lie.
type Config struct {
	Dir string // absolute; made if missing, and the driver's alone
}

// Driver makes machines that isolate nothing.
type Driver struct {
	census census
	dir    string

	mu     sync.Mutex
	closed bool
	held   map[sandbox.ID]*machine // a nil one is being made or moved
	aside  map[sandbox.ID]*aside   // what Pause has put aside in this process
}

// New makes the driver; its folder is made at once.
func New(c Config) (*Driver, error) {
	if !filepath.IsAbs(c.Dir) {
		return nil, sandbox.Errorf("open fake driver", sandbox.Invalid, "folder %q is not absolute", c.Dir)
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, &sandbox.Error{Op: "open fake driver", Kind: sandbox.Internal, Err: err}
	}
	return &Driver{dir: c.Dir, held: map[sandbox.ID]*machine{}, aside: map[sandbox.ID]*aside{}}, nil
}

// Class is "fake".
func (d *Driver) Class() string { return Class }

// Probe always succeeds, and says that nothing is isolated.
func (d *Driver) Probe(ctx context.Context) (driver.Capabilities, error) {
	return driver.Capabilities{
		Version:  runtime.Version(),
		Details:  map[string]string{"folder": d.dir},
		Warnings: []string{"the fake driver isolates nothing: use it for tests only"},
	}, ctx.Err()
}

// Create makes a scratch folder and a guest that works in it.
func (d *Driver) Create(ctx context.Context, spec driver.Spec) (driver.Machine, error) {
	m, err := d.createFrom(ctx, spec, nil)
	if err != nil {
		return nil, &sandbox.Error{Op: "create", ID: spec.ID, Err: err}
	}
	return m, nil
}

// createFrom makes a machine in whose folder is what fill puts there, if that is
// not nil.
func (d *Driver) createFrom(ctx context.Context, spec driver.Spec, fill func(folder string) error) (*machine, error) {
	if err := check(spec); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := d.reserve(spec.ID); err != nil {
		return nil, err
	}
	var m *machine
	var err error
	if fill != nil {
		if err = fill(d.folder(spec.ID)); err != nil {
			err = errors.Join(err, os.RemoveAll(d.folder(spec.ID)))
		}
	}
	if err == nil {
		m, err = start(d, spec)
	}
	if err == nil {
		if err = m.greet(ctx); err != nil {
			err = errors.Join(err, m.end("its creation was given up", false))
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err == nil && d.closed {
		err = errors.Join(errClosed(), m.end("the driver was closed", false))
	}
	if err != nil {
		delete(d.held, spec.ID)
		return nil, err
	}
	d.held[spec.ID] = m
	return m, nil
}

func check(spec driver.Spec) error {
	if _, err := sandbox.ParseID(string(spec.ID)); err != nil {
		return err
	}
	if len(spec.Mounts) > 0 {
		return &sandbox.Error{Op: "check mounts", Kind: sandbox.Unsupported, Err: errors.New("the class fake mounts no folders"), Hint: "use the class gvisor"}
	}
	return spec.Limits.Check()
}

// reserve takes an id that is in no use, in this process or on the disk.
func (d *Driver) reserve(id sandbox.ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return errClosed()
	}
	if _, ok := d.held[id]; ok {
		return sandbox.Errorf("", sandbox.Conflict, "the id is in use")
	}
	if _, err := os.Lstat(d.folder(id)); err == nil || d.isAside(id) {
		return &sandbox.Error{Kind: sandbox.Conflict, Err: errors.New("the id's folder is there already"), Hint: "sweep what is left of it"}
	}
	d.held[id] = nil
	return nil
}

func errClosed() error { return sandbox.Errorf("", sandbox.Unavailable, "the driver is closed") }

func (d *Driver) folder(id sandbox.ID) string { return filepath.Join(d.dir, string(id)) }

// Recover finds the machines of this process only: others ended with theirs.
func (d *Driver) Recover(ctx context.Context, id sandbox.ID, state []byte) (driver.Machine, error) {
	if err := checkState(id, state); err != nil {
		return nil, &sandbox.Error{Op: "recover", ID: id, Err: err}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if m := d.held[id]; m != nil {
		return m, nil
	}
	if _, ok := d.held[id]; ok {
		return nil, &sandbox.Error{Op: "recover", ID: id, Kind: sandbox.Conflict, Err: errors.New("it is being made")}
	}
	if !d.isAside(id) {
		if err := wipe(ctx, d.folder(id), id); err != nil {
			return nil, &sandbox.Error{Op: "recover", ID: id, Err: err}
		}
	}
	return nil, &sandbox.Error{Op: "recover", ID: id, Kind: sandbox.NotFound, Err: errors.New("the machine ended with the process that made it")}
}

// Sweep removes the folders and processes of machines that are no more.
func (d *Driver) Sweep(ctx context.Context, keep []sandbox.ID) ([]sandbox.ID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, &sandbox.Error{Op: "sweep", Kind: sandbox.Internal, Err: err}
	}
	var swept []sandbox.ID
	for _, e := range entries {
		id, err := sandbox.ParseID(strings.TrimSuffix(e.Name(), markSuffix))
		if _, held := d.held[id]; err != nil || held || slices.Contains(keep, id) || slices.Contains(swept, id) {
			continue
		}
		if err := d.clear(ctx, id); err != nil {
			return swept, &sandbox.Error{Op: "sweep", ID: id, Err: err}
		}
		swept = append(swept, id)
	}
	return swept, nil
}

// Close ends every machine, and those put aside with their memory: it was in this
// process.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	var all []*machine
	for _, m := range d.held {
		if m != nil {
			all = append(all, m)
		}
	}
	errs := d.dropAsides()
	d.mu.Unlock()
	for _, m := range all {
		if err := m.end("the driver was closed", false); err != nil {
			errs = append(errs, fmt.Errorf("close %s: %w", m.id, err))
		}
	}
	return errors.Join(errs...)
}

// release forgets a machine that has ended, unless a later one has its id.
func (d *Driver) release(m *machine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.held[m.id] == m {
		delete(d.held, m.id)
	}
}
