// Package runsc makes a program the gVisor engine: driver/gvisor starts it under the
// engine's name, and Dispatch then runs the engine in place of main.
//
// The engine starts itself again and again: once for the sandbox, with the
// environment cleared. So it is told by the name it was called with alone.
package runsc

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/berth-dev/berth/driver/gvisor/runsc/called"
)

// names are those that the engine gives itself; "exe" is of /proc/self/exe.
var names = []string{called.Name, "runsc-sandbox", "runsc-gofer", "runsc-exec", "exe"}

// Dispatch runs the engine and ends the program if it was called by one of the
// engine's names; otherwise it does nothing. It must come first in main.
func Dispatch() {
	name := filepath.Base(os.Args[0])
	for _, n := range names {
		if name == n {
			if name == called.Name {
				// A command is over before it has left much.
				debug.SetGCPercent(-1)
				debug.SetMemoryLimit(64 << 20)
			}
			run()
			os.Exit(0)
		}
	}
}

func run() {
	if list := os.Getenv(called.CgroupsVar); list != "" {
		os.Unsetenv(called.CgroupsVar)
		if err := confine(strings.Split(list, ":")); err != nil {
			fmt.Fprintln(os.Stderr, "confine engine:", err)
			os.Exit(128)
		}
	}
	cli.Run(nil, map[util.SubCommand]string{
		new(cmd.Run):          "",
		new(cmd.Create):       "",
		new(shell):            "",
		new(cmd.Start):        "",
		new(cmd.Delete):       "",
		new(cmd.Kill):         "",
		new(cmd.Wait):         "",
		new(cmd.State):        "",
		new(cmd.Pause):        "",
		new(cmd.Resume):       "",
		new(cmd.Checkpoint):   "",
		new(cmd.Restore):      "",
		new(cmd.FSCheckpoint): "",
		new(cmd.Debug):        "",

		new(sentrycmd.Boot):   "internal",
		new(cmd.Gofer):        "internal",
		new(sentrycmd.Umount): "internal",
	}, nil)
}

// confine joins the cgroups and makes this process, and all that it starts, the
// first to go when memory ends. The spec takes the sentry alone out of that
// again (process.oomScoreAdj), so that want of memory ends a program inside and
// not the sandbox.
func confine(groups []string) error {
	for _, procs := range groups {
		if err := os.WriteFile(procs, []byte("0"), 0); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
}
