package fake

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var _ driver.Keeper = (*Driver)(nil)

// Kept implements driver.Keeper.
func (d *Driver) Kept(ctx context.Context, id sandbox.ID) (int64, error) {
	const op = "measure what is kept"
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return 0, &sandbox.Error{Op: op, ID: id, Err: err}
	}
	if _, err := os.Stat(d.folder(id)); err != nil {
		return 0, &sandbox.Error{Op: op, Kind: sandbox.NotFound, ID: id, Err: err}
	}
	n, err := occupied(ctx, d.folder(id))
	if err != nil {
		return 0, &sandbox.Error{Op: op, ID: id, Err: err}
	}
	return n, nil
}

// occupied is how many bytes of the disk a folder and all in it take.
func occupied(ctx context.Context, dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil {
			return skipMissing(err)
		}
		info, err := e.Info()
		if err != nil {
			return skipMissing(err)
		}
		sum += blocks(info)
		return ctx.Err()
	})
	return sum, err
}
