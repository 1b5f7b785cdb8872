package gvisor

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

// closedTargets are where nothing may be mounted, nor beneath.
var closedTargets = []string{"/proc", "/sys", "/dev", guestDir}

// checkMounts reports an error for the first mount that cannot be.
func checkMounts(all []driver.Mount) error {
	const op = "check mount"
	var seen []string
	for _, m := range all {
		switch {
		case !path.IsAbs(m.Source) || !path.IsAbs(m.Target) || path.Clean(m.Target) != m.Target || m.Target == "/":
			return sandbox.Errorf(op, sandbox.Invalid, "from %q to %q: both are absolute paths, and the root is no target", m.Source, m.Target)
		case slices.ContainsFunc(closedTargets, func(c string) bool { return m.Target == c || strings.HasPrefix(m.Target, c+"/") }):
			return sandbox.Errorf(op, sandbox.Invalid, "%s is the sandbox's own", m.Target)
		case slices.Contains(seen, m.Target):
			return sandbox.Errorf(op, sandbox.Invalid, "%s is named twice", m.Target)
		}
		seen = append(seen, m.Target)
		fi, err := os.Stat(m.Source)
		if err == nil && !fi.IsDir() {
			err = fmt.Errorf("%s is no folder", m.Source)
		}
		if err != nil {
			return &sandbox.Error{Op: op, Kind: sandbox.NotFound, Err: err}
		}
	}
	return nil
}

// bindMounts describes mounts to the engine, whose gofer serves them.
func bindMounts(all []driver.Mount) []specs.Mount {
	out := make([]specs.Mount, 0, len(all))
	for _, m := range all {
		access := "rw"
		if m.ReadOnly {
			access = "ro"
		}
		out = append(out, specs.Mount{Destination: m.Target, Type: "bind", Source: m.Source, Options: []string{"rbind", access, "nosuid", "nodev"}})
	}
	return out
}

// unpin removes the mounts that pin the namespace of a gofer, which is in it by
// then: nobody else is to have it, and a folder with a mount in it cannot be
// removed.
func (p place) unpin() { specutils.UnmountNullNetNS(p.engine()) }
