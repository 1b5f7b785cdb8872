package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var (
	_ driver.Snapshotter = (*Driver)(nil)
	_ driver.Forker      = (*Driver)(nil)
)

// diskName is the folder of a captured one that holds the scratch folder.
const diskName = "disk"

// errNoMemory says what this driver cannot do: its processes are the host's.
func errNoMemory() error {
	return &sandbox.Error{Kind: sandbox.Unsupported, Err: errors.New("the fake driver cannot copy memory"), Hint: "copy the disk alone, or use the class gvisor"}
}

// Capture implements driver.Snapshotter, for the disk alone.
func (d *Driver) Capture(ctx context.Context, dm driver.Machine, keep driver.Keep, dir string) error {
	const op = "capture"
	m, ok := dm.(*machine)
	if !ok || m.d != d || (keep != driver.KeepMemory && keep != driver.KeepDisk) {
		return sandbox.Errorf(op, sandbox.Invalid, "the machine is of another driver, or what to keep is unknown: %q", keep)
	}
	if keep == driver.KeepMemory {
		return &sandbox.Error{Op: op, ID: m.id, Err: errNoMemory()}
	}
	if err := ctx.Err(); err != nil {
		return &sandbox.Error{Op: op, ID: m.id, Err: err}
	}
	m.ending.Lock()
	defer m.ending.Unlock()
	select {
	case <-m.done:
		return &sandbox.Error{Op: op, ID: m.id, Err: errEnded()}
	default:
	}
	err := freeze(m.id)
	if err == nil {
		err = d.write(ctx, m.id, m.limits, dir)
	}
	if err = errors.Join(err, thaw(m.id)); err != nil {
		return &sandbox.Error{Op: op, ID: m.id, Err: err}
	}
	return nil
}

// CaptureSaved implements driver.Snapshotter, for what was put aside with its disk
// alone.
func (d *Driver) CaptureSaved(ctx context.Context, id sandbox.ID, b []byte, dir string) error {
	s, err := readSaved(id, b)
	if err == nil && s.Keep == driver.KeepMemory {
		err = errNoMemory()
	}
	if err == nil {
		err = d.whileAside(ctx, s, func() error { return d.write(ctx, id, sandbox.DefaultLimits(), dir) })
	}
	if err != nil {
		return &sandbox.Error{Op: "capture", ID: id, Err: err}
	}
	return nil
}

// whileAside does something with what lies aside, which nobody takes up meanwhile.
func (d *Driver) whileAside(ctx context.Context, s saved, do func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := d.takeUp(s); err != nil {
		return err
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.held, s.ID)
	}()
	return do()
}

// write copies a machine's folder into one that is captured.
func (d *Driver) write(ctx context.Context, id sandbox.ID, l sandbox.Limits, dir string) error {
	if err := copyFolder(filepath.Join(dir, diskName), d.folder(id)); err != nil {
		return err
	}
	a := driver.About{Format: driver.AboutFormat, Class: Class, Engine: runtime.Version(), Arch: runtime.GOARCH,
		Keep: driver.KeepDisk, Limits: l, Taken: time.Now().UTC()}
	var err error
	if a.Disk, err = occupied(ctx, filepath.Join(dir, diskName)); err != nil {
		return err
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return writeMark(filepath.Join(dir, driver.AboutName), b)
}

// copyFolder copies a folder as it is, into one that is not there yet.
func copyFolder(to, from string) error {
	if out, err := exec.Command("cp", "-a", "--reflink=auto", "--", from, to).CombinedOutput(); err != nil {
		return &sandbox.Error{Kind: sandbox.Internal, Err: fmt.Errorf("copy folder: %w: %.200s", err, out)}
	}
	return nil
}

// Restore implements driver.Snapshotter.
func (d *Driver) Restore(ctx context.Context, spec driver.Spec, dir string) (driver.Machine, error) {
	a, err := readAbout(dir)
	if err == nil {
		err = d.Fits(a)
	}
	var m *machine
	if err == nil {
		m, err = d.hatch(ctx, spec, filepath.Join(dir, diskName), a.Disk)
	}
	if err != nil {
		return nil, &sandbox.Error{Op: "restore", ID: spec.ID, Err: err}
	}
	return m, nil
}

// hatch makes a machine whose folder begins as a copy of one.
func (d *Driver) hatch(ctx context.Context, spec driver.Spec, folder string, disk int64) (*machine, error) {
	if disk > spec.Limits.DiskBytes {
		return nil, &sandbox.Error{Kind: sandbox.Exhausted, Err: fmt.Errorf("the disk is %d MiB, and what was captured holds %d", spec.Limits.DiskBytes>>20, disk>>20),
			Hint: "ask for a larger disk"}
	}
	if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
		return nil, notWhole(errors.Join(err, errors.New("no disk is in it")))
	}
	return d.createFrom(ctx, spec, func(to string) error { return copyFolder(to, folder) })
}

// readAbout reads what a captured folder says of itself, 64 KiB at most.
func readAbout(dir string) (a driver.About, err error) {
	path := filepath.Join(dir, driver.AboutName)
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Size() > 64<<10 {
		return a, notWhole(errors.Join(err, errors.New("its about is not one")))
	}
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err != nil {
		return a, notWhole(err)
	}
	return a, nil
}

func notWhole(err error) error {
	return &sandbox.Error{Op: "read what was captured", Kind: sandbox.Invalid, Err: err, Hint: "it is damaged, or its capture never ended: take another"}
}

// Fits implements driver.Snapshotter.
func (d *Driver) Fits(a driver.About) error {
	if a.Format != driver.AboutFormat || a.Class != Class || a.Keep != driver.KeepDisk {
		return &sandbox.Error{Op: "check what was captured", Kind: sandbox.Unsupported,
			Err: fmt.Errorf("it is of format %d and class %.40q, with %.40q kept", a.Format, a.Class, a.Keep), Hint: "use what made it"}
	}
	return nil
}

// Fork implements driver.Forker: it says that it cannot.
func (d *Driver) Fork(_ context.Context, dm driver.Machine, _ []driver.Spec) (driver.Forks, error) {
	m, ok := dm.(*machine)
	if !ok || m.d != d {
		return driver.Forks{}, sandbox.Errorf("fork", sandbox.Invalid, "the machine is of another driver")
	}
	return driver.Forks{}, &sandbox.Error{Op: "fork", ID: m.id, Err: errNoMemory()}
}

// ForkSaved implements driver.Forker, for what was put aside with its disk alone.
func (d *Driver) ForkSaved(ctx context.Context, id sandbox.ID, b []byte, specs []driver.Spec) (driver.Forks, error) {
	s, err := readSaved(id, b)
	if err == nil && s.Keep == driver.KeepMemory {
		err = errNoMemory()
	}
	f := driver.Forks{Each: make([]driver.Forked, len(specs))}
	if err == nil {
		err = d.whileAside(ctx, s, func() error {
			for i, spec := range specs {
				m, err := d.hatch(ctx, spec, d.folder(id), 0)
				if err != nil {
					f.Each[i].Err = &sandbox.Error{Op: "fork", ID: spec.ID, Err: err}
					continue
				}
				f.Each[i].Machine = m
			}
			return nil
		})
	}
	if err != nil {
		return driver.Forks{}, &sandbox.Error{Op: "fork", ID: id, Err: err}
	}
	return f, nil
}
