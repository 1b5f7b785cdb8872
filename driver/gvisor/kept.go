package gvisor

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var _ driver.Keeper = (*Driver)(nil)

// Kept implements driver.Keeper.
func (d *Driver) Kept(ctx context.Context, id sandbox.ID) (int64, error) {
	const op = "measure what is kept"
	if _, err := sandbox.ParseID(string(id)); err != nil {
		return 0, fault(op, id, err)
	}
	n, err := occupied(ctx, d.place(id).dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, &sandbox.Error{Op: op, Kind: sandbox.NotFound, ID: id, Err: errGone}
	}
	return n, fault(op, id, err)
}

// occupied is how many bytes of the disk a folder and all in it take. What goes
// away meanwhile is not counted; a folder that is not there is an error.
func occupied(ctx context.Context, dir string) (sum int64, err error) {
	err = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			var st unix.Stat_t
			if err = unix.Lstat(path, &st); err == nil {
				sum += st.Blocks * 512
			}
		}
		if path != dir && errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return errors.Join(err, ctx.Err())
	})
	return sum, err
}
