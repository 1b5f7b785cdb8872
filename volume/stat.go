package volume

import (
	"fmt"
	"io/fs"
	"syscall"
)

// statOf is what the kernel tells of a file beyond what package os does.
func statOf(fi fs.FileInfo) (*syscall.Stat_t, error) {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("stat %s: it is of type %T", fi.Name(), fi.Sys())
	}
	return st, nil
}
