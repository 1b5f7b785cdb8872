package docker

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// unmountTime bounds how long a container's end waits for its mounts' end.
const unmountTime = 10 * time.Second

// unmount ends the FUSE mounts of a container that exits: its client takes them to be over
// with it, and mounts anew over the same folders when it is started again. One that cannot
// be unmounted stays. Where there is no such program nothing can have been mounted.
func (d *Dialect) unmount(ctx context.Context, c *container) error {
	if c.box.Limits.FuseMounts == 0 {
		return nil
	}
	events, err := d.engine.Exec(ctx, string(c.box.ID), sandbox.Command{User: "root", Cwd: "/", Timeout: unmountTime,
		Argv: []string{"sh", "-c", "command -v fusermount >/dev/null && exec fusermount --quiet --unmount --lazy --all"}})
	if err != nil {
		return err
	}
	defer events.Close()
	for err == nil {
		_, err = events.Recv()
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
