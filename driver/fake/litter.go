package fake

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var _ driver.Tidier = (*Driver)(nil)

// Litter implements driver.Tidier.
func (d *Driver) Litter(ctx context.Context) ([]sandbox.Litter, error) {
	const op = "look for litter"
	d.mu.Lock()
	defer d.mu.Unlock()
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, &sandbox.Error{Op: op, Kind: sandbox.Internal, Err: err}
	}
	var all []sandbox.Litter
	for _, e := range entries {
		id, err := sandbox.ParseID(strings.TrimSuffix(e.Name(), markSuffix))
		_, held := d.held[id]
		if err != nil || held || slices.ContainsFunc(all, func(l sandbox.Litter) bool { return l.Name == string(id) }) {
			continue
		}
		n, err := occupied(ctx, d.folder(id))
		if err != nil {
			return nil, &sandbox.Error{Op: op, ID: id, Err: err}
		}
		all = append(all, sandbox.Litter{Kind: sandbox.LitterMachine, Name: string(id), Bytes: n})
	}
	return all, nil
}

// Clear implements driver.Tidier: the fake shares no files.
func (d *Driver) Clear(_ context.Context, l sandbox.Litter) error {
	return &sandbox.Error{Op: "remove litter", Kind: sandbox.Conflict, Err: errors.New("it is no litter of this driver: " + string(l.Kind))}
}
