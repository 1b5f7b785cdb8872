package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// keepDescriptors keeps what whoever started this program left open from the
// programs that it starts: sandboxes, and the tools that build templates.
func keepDescriptors() error {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return &sandbox.Error{Op: "list descriptors", Kind: sandbox.Unsupported, Err: err, Hint: "mount /proc"}
	}
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
