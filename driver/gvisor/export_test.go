package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/sandbox"
)

// Throttled is how often the kernel has held the machine's group back.
func (d *Driver) Throttled(id sandbox.ID) (int64, error) {
	g := d.groups.group(string(id))
	stat, err := readStat(filepath.Join(g.dir(d.groups.cpu), "cpu.stat"))
	return stat["nr_throttled"], err
}

// Traces lists the ids that anything is left of.
func (d *Driver) Traces() ([]sandbox.ID, error) { return d.traces() }

// Tag names the driver's own folder in each cgroup hierarchy.
func (d *Driver) Tag() string { return filepath.Base(d.groups.parent) }

// DialRaw opens a connection to the guest's port without the preface.
func (d *Driver) DialRaw(ctx context.Context, id sandbox.ID) (net.Conn, error) {
	d.mu.Lock()
	m := d.held[id]
	d.mu.Unlock()
	return m.link.DialGuest(ctx, guestapi.Port)
}

// KillEngine kills a machine's sentry behind the driver's back.
func (d *Driver) KillEngine(id sandbox.ID) error {
	d.mu.Lock()
	m := d.held[id]
	d.mu.Unlock()
	return unix.Kill(m.state.Process.PID, unix.SIGKILL)
}

// OOMScores reads oom_score_adj of a machine's sentry and of all else in its
// group.
func (d *Driver) OOMScores(id sandbox.ID) (sentry int64, others []int64, err error) {
	d.mu.Lock()
	m := d.held[id]
	d.mu.Unlock()
	pids, err := m.group.processes()
	for _, pid := range pids {
		n, err := readInt(fmt.Sprintf("/proc/%d/oom_score_adj", pid))
		switch {
		case err != nil: // it has ended meanwhile
		case pid == m.state.Process.PID:
			sentry = n
		default:
			others = append(others, n)
		}
	}
	return sentry, others, err
}

// LimitsOf are the limits of a machine's group, as its files hold them.
func (d *Driver) LimitsOf(id sandbox.ID) ([]string, error) {
	held, err := d.groups.group(string(id)).limits()
	var all []string
	for _, l := range held {
		all = append(all, l.Name+" "+l.Text)
	}
	return all, err
}

// Idle reports whether a machine's group runs only where no others would.
func (d *Driver) Idle(id sandbox.ID) (bool, error) {
	g := d.groups.group(string(id))
	n, err := readInt(filepath.Join(g.dir(d.groups.cpu), "cpu.idle"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // of a kernel that has no such thing
	}
	return n != 0, err
}

// Engine is the process id of a machine's sentry.
func (d *Driver) Engine(id sandbox.ID) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.held[id].state.Process.PID
}

// AsOldEngine asks engines for a call that none knows, until the result is called.
func AsOldEngine() (undo func()) {
	now := carryCall
	carryCall += "NotYet"
	return func() { carryCall = now }
}

// Shells are the process ids of the engines that wait.
func (d *Driver) Shells() (pids []int) {
	d.shelf.mu.Lock()
	defer d.shelf.mu.Unlock()
	for _, w := range d.shelf.kinds {
		for _, sh := range w.ready {
			pids = append(pids, sh.process.PID)
		}
	}
	return pids
}

// ExpectShell lets an engine start for machines like spec.
func (d *Driver) ExpectShell(spec driver.Spec) {
	d.shelf.expect(kindOf(spec, filepath.Base(d.presentGuest())))
}

// ExpectWake lets an engine start for what was put aside.
func (d *Driver) ExpectWake(spec driver.Spec, b []byte) error {
	s, err := readSaved(b)
	if err == nil {
		d.shelf.expect(kindOf(spec, s.State.Guest))
	}
	return err
}

// Abandon stops looking after the engines that wait, as the end of the process does.
func (d *Driver) Abandon() {
	d.shelf.mu.Lock()
	d.shelf.kinds = map[kind]*demand{}
	d.shelf.mu.Unlock()
	d.shelf.close()
}

// ReduceAsFarAs does the first part of a Reduce, as a process does that is killed then:
// up to where all is written, or up to where it counts.
func (d *Driver) ReduceAsFarAs(ctx context.Context, spec driver.Spec, b []byte, counts bool) error {
	s, err := readSaved(b)
	if err != nil {
		return err
	}
	if err := d.writeReduced(ctx, spec, s); err != nil || !counts {
		return err
	}
	s.Keep = driver.KeepDisk
	if s.Sums, err = sumFolder(d.place(spec.ID).reduced()); err != nil {
		return err
	}
	out, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return writeWhole(d.place(spec.ID).asideNote(), out)
}

// ReduceLoaded does as much of a Reduce as loads the engine, and leaves that.
func (d *Driver) ReduceLoaded(ctx context.Context, spec driver.Spec, b []byte) error {
	s, err := readSaved(b)
	if err != nil {
		return err
	}
	p := d.place(spec.ID)
	if err := errors.Join(writeWhole(p.reducingNote(), nil), removeAll(p.stateNote(), p.engine(), p.pidFile(), p.panicLog())); err != nil {
		return err
	}
	sh, err := d.shellFor(ctx, spec, s.State.Guest)
	if err != nil {
		return err
	}
	defer sh.close()
	return sh.loadStill(ctx, p.saved())
}

// ResumeAsFarAs does the first part of a Resume, as a process does that is killed then:
// up to where an engine waits, or up to where what was saved runs. The result is the
// engine's process.
func (d *Driver) ResumeAsFarAs(ctx context.Context, spec driver.Spec, b []byte, runs bool) (pid int, err error) {
	s, err := readSaved(b)
	if err != nil {
		return 0, err
	}
	p := d.place(spec.ID)
	if err := p.beginResume(); err != nil {
		return 0, err
	}
	if runs {
		m, err := d.wake(ctx, spec, s)
		if err != nil {
			return 0, err
		}
		m.release()
		return m.state.Process.PID, nil
	}
	sh, err := d.shellFor(ctx, spec, s.State.Guest)
	if err != nil {
		return 0, err
	}
	sh.close()
	s.State.Process = sh.process
	return sh.process.PID, p.noteState(s.State)
}

// PutBack ends a machine that was being resumed.
func (d *Driver) PutBack(ctx context.Context, id sandbox.ID) error {
	return d.putBack(ctx, id, errors.New("on purpose"))
}

// ForkAndDie is Fork of a machine whose engine is killed once its children load.
func (d *Driver) ForkAndDie(ctx context.Context, dm driver.Machine, specs []driver.Spec) (driver.Forks, error) {
	m, err := d.own(dm)
	if err != nil {
		return driver.Forks{}, err
	}
	return m.forkBy(ctx, specs, newStages(), func(a *aim, ctx context.Context, img *image, taken func()) (time.Duration, error) {
		return a.shoot(ctx, img, func() {
			taken()
			_ = unix.Kill(m.state.Process.PID, unix.SIGKILL) // one that has ended is what is wanted
		})
	})
}

// Clones reports whether the driver's disk shares files by itself.
func (d *Driver) Clones() bool { return d.clones }

// CutFreezeShort begins to freeze a machine's layer and leaves it at that, before or
// after the engine goes on in the new file.
func (d *Driver) CutFreezeShort(dm driver.Machine, done bool) error {
	m, err := d.own(dm)
	if err != nil {
		return err
	}
	z, err := m.prepareFreeze()
	if err != nil || z == nil {
		return fmt.Errorf("nothing is frozen: %w", err)
	}
	if !done {
		return z.next.Close()
	}
	var out struct{ Unthawed string }
	err = m.place.callFor(m.id, "containerManager.FreezeLayer", &layerArgs{urpc.FilePayload{Files: []*os.File{z.next}}}, &out)
	return errors.Join(err, z.next.Close())
}

// OverwriteProgram tries to change the engine's program, as what runs of it could.
func (d *Driver) OverwriteProgram() error {
	path, err := d.engineProgram()
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{0}, 0)
	return errors.Join(err, f.Close())
}
