package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var _ driver.Tidier = (*Driver)(nil)

// Litter implements driver.Tidier.
func (d *Driver) Litter(ctx context.Context) ([]sandbox.Litter, error) {
	const op = "look for litter"
	ids, err := d.traces()
	if err != nil {
		return nil, fault(op, "", err)
	}
	var all []sandbox.Litter
	for _, id := range ids {
		if d.holds(id) {
			continue
		}
		n, err := occupied(ctx, d.place(id).dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be a cgroup alone
			return nil, fault(op, id, err)
		}
		all = append(all, sandbox.Litter{Kind: sandbox.LitterMachine, Name: string(id), Bytes: n})
	}
	files, err := d.litterFiles(ctx)
	return append(all, files...), fault(op, "", err)
}

// holds reports whether this process has a machine, or is making it.
func (d *Driver) holds(id sandbox.ID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, held := d.held[id]
	return held
}

// litterFiles lists the shared files that no machine needs.
func (d *Driver) litterFiles(ctx context.Context) ([]sandbox.Litter, error) {
	d.imageMu.Lock()
	defer d.imageMu.Unlock()
	return d.litterUnder(ctx)
}

// litterUnder is litterFiles for whoever holds imageMu: no image is being made, so
// what is half made was left by a process that ended.
func (d *Driver) litterUnder(ctx context.Context) ([]sandbox.Litter, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	needed, sure, err := d.neededGuests(entries)
	if err != nil {
		return nil, err
	}
	var all []sandbox.Litter
	for _, e := range entries {
		var kind sandbox.LitterKind
		switch name := e.Name(); {
		case strings.HasPrefix(name, unsavedImage):
			kind = sandbox.LitterUnsaved
		case sure && guestImageName.MatchString(name) && !needed[name]:
			kind = sandbox.LitterGuest
		default:
			continue
		}
		n, err := occupied(ctx, filepath.Join(d.dir, e.Name()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		all = append(all, sandbox.Litter{Kind: kind, Name: e.Name(), Bytes: n})
	}
	return all, nil
}

// neededGuests names the guests' images that machines need, and the present one,
// which the next will. It is sure only if every machine's folder says which it
// needs.
func (d *Driver) neededGuests(entries []fs.DirEntry) (needed map[string]bool, sure bool, err error) {
	needed = map[string]bool{}
	if d.present != "" {
		needed[d.present] = true
	}
	for _, e := range entries {
		id, err := sandbox.ParseID(e.Name())
		if err != nil {
			continue
		}
		names, err := d.guestsOf(id)
		if err != nil {
			return nil, false, err
		}
		if len(names) == 0 {
			return nil, false, nil
		}
		for _, n := range names {
			needed[n] = true
		}
	}
	return needed, true, nil
}

// guestsOf names the images that one machine needs, as far as that can be told.
func (d *Driver) guestsOf(id sandbox.ID) (names []string, err error) {
	if m := d.heldMachine(id); m != nil {
		return []string{m.state.Guest}, nil
	}
	p := d.place(id)
	for _, file := range []string{p.stateNote(), p.asideNote()} {
		b, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var n struct {
			Guest string `json:"guest"` // of state.json
			State state  `json:"state"` // of aside.json
		}
		if json.Unmarshal(b, &n) != nil || n.Guest+n.State.Guest == "" {
			return nil, nil // damaged: the record may know better
		}
		names = append(names, n.Guest+n.State.Guest)
	}
	return names, nil
}

// Clear implements driver.Tidier.
func (d *Driver) Clear(ctx context.Context, l sandbox.Litter) error {
	const op = "remove litter"
	d.imageMu.Lock()
	defer d.imageMu.Unlock()
	all, err := d.litterUnder(ctx)
	if err != nil {
		return fault(op, "", err)
	}
	for _, now := range all {
		if now.Kind == l.Kind && now.Name == l.Name {
			return fault(op, "", os.RemoveAll(filepath.Join(d.dir, now.Name)))
		}
	}
	if _, err := os.Lstat(filepath.Join(d.dir, filepath.Base(l.Name))); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return &sandbox.Error{Op: op, Kind: sandbox.Conflict, Err: errors.New("it is needed"), Hint: "look for litter again"}
}
