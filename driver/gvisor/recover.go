package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/netgw"
	"github.com/berth-dev/berth/sandbox"
)

// Recover implements driver.Driver.
func (d *Driver) Recover(ctx context.Context, id sandbox.ID, b []byte) (driver.Machine, error) {
	var s state
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, &sandbox.Error{Op: "recover", Kind: sandbox.Unsupported, ID: id, Err: err}
	}
	if s.Version != stateVersion {
		return nil, &sandbox.Error{Op: "recover", ID: id, Err: sandbox.Errorf("read state", sandbox.Unsupported, "version %d is unknown", s.Version),
			Hint: "start the version of berth that made it"}
	}
	if err := d.hold(id); err != nil {
		return nil, fault("recover", id, err)
	}
	m, err := d.recover(ctx, id, s)
	if err == nil {
		d.adopt(m)
		return m, nil
	}
	defer d.forget(id)
	if !errors.Is(err, errGone) {
		return nil, fault("recover", id, err)
	}
	if err := d.destroy(ctx, id); err != nil {
		return nil, fault("recover", id, err)
	}
	return nil, &sandbox.Error{Op: "recover", Kind: sandbox.NotFound, ID: id, Err: errGone}
}

func (d *Driver) recover(ctx context.Context, id sandbox.ID, s state) (*machine, error) {
	// The process is made sure of before its namespace is entered.
	pidfd, err := s.Process.open()
	if err != nil {
		return nil, err
	}
	defer pidfd.Close()
	ns, err := netgw.NamespaceOf(s.Process.PID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errGone // it ended this moment
	}
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	p := d.place(id)
	if err := errors.Join(p.imposeNoted(), p.removeForks()); err != nil {
		return nil, err
	}
	m, err := d.attachFreed(ctx, id, s, ns)
	if err != nil {
		return nil, err
	}
	if err := m.settleLayer(); err != nil {
		m.release()
		return nil, err
	}
	if err := m.seeLacking(); err != nil {
		m.release()
		return nil, err
	}
	return m, nil
}

// attachFreed is attach to a link that another may hold for a moment yet: a program that
// the process before was about to start when it was killed has its descriptors until
// then, and so has one that this process is about to start.
func (d *Driver) attachFreed(ctx context.Context, id sandbox.ID, s state, ns *netgw.Namespace) (*machine, error) {
	freed, cancel := context.WithTimeout(ctx, endingTime)
	defer cancel()
	for {
		m, err := d.attach(id, s, ns)
		if !errors.Is(err, unix.EBUSY) {
			return m, err
		}
		select {
		case <-time.After(lookEvery):
		case <-freed.Done():
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, err
		}
	}
}

// Sweep implements driver.Driver.
func (d *Driver) Sweep(ctx context.Context, keep []sandbox.ID) ([]sandbox.ID, error) {
	found, err := d.traces()
	if err != nil {
		return nil, fault("sweep", "", err)
	}
	var swept []sandbox.ID
	for _, id := range found {
		if slices.Contains(keep, id) {
			continue
		}
		if err := d.hold(id); err != nil {
			if sandbox.KindOf(err) == sandbox.Conflict {
				continue // a live machine of this process
			}
			return swept, fault("sweep", id, err)
		}
		err := d.destroy(ctx, id)
		d.forget(id)
		if err != nil {
			return swept, fault("sweep", id, err)
		}
		swept = append(swept, id)
	}
	return swept, nil
}

// traces lists the ids of which anything is left, in folders or cgroups.
func (d *Driver) traces() ([]sandbox.ID, error) {
	names, err := d.groups.ids()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	var ids []sandbox.ID
	for _, n := range slices.Compact(names) {
		if id, err := sandbox.ParseID(n); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
