package rig

import (
	"os"
	"slices"
)

// room is what servers of tests want of their disk: on most machines it holds much else, and
// how full that makes it must not decide about a test.
const room = "[room]\nfree = \"256MiB\"\npercent = 0\n"

// WithRoom gives a server's flags a configuration, in a file of this path, with which it takes
// sandboxes on a disk that is almost full. Flags that name one stay as they are.
func WithRoom(path string, flags []string) ([]string, error) {
	if slices.Contains(flags, "--config") {
		return flags, nil
	}
	return slices.Concat(flags, []string{"--config", path}), os.WriteFile(path, []byte(room), 0o600)
}
