package main

import (
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/config"
	"github.com/berth-dev/berth/engine"
)

// dataDisk is the one that a folder lies on.
type dataDisk struct{ dir string }

// Free implements engine.Room: what root's reserve leaves is not counted.
func (d dataDisk) Free() (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(d.dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * st.Bsize, int64(st.Blocks) * st.Bsize, nil
}

// roomOf is what must stay free of the disk with the data.
func roomOf(data string, c *config.File) engine.RoomConfig {
	percent := int64(5)
	if c.Room.Percent != nil {
		percent = *c.Room.Percent
	}
	return engine.RoomConfig{Of: dataDisk{data}, Reserve: int64(c.Room.Free), Share: float64(percent) / 100}
}
