// Package runsc makes this program also the gVisor engine: driver/gvisor starts
// the program anew under the engine's name, and Dispatch then runs the engine in
// place of main.
//
// The engine starts itself again and again: once for the sandbox, with the
// environment cleared. So it is told by the name it was called with alone.
package runsc

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"
)

// Name is what driver/gvisor calls the program to run the engine.
const Name = "runsc"

// CgroupsVar is the environment variable that names the cgroup.procs files
// which the engine joins before all else, separated by colons.
const CgroupsVar = "BERTH_JOIN_CGROUPS"

// names are those that the engine gives itself; "exe" is of /proc/self/exe.
var names = []string{Name, "runsc-sandbox", "runsc-gofer", "runsc-exec", "exe"}

// Dispatch runs the engine and ends the program if it was called by one of the
// engine's names; otherwise it does nothing. It must come first in main.
func Dispatch() {
	called := filepath.Base(os.Args[0])
	for _, n := range names {
		if called == n {
			run()
			os.Exit(0)
		}
	}
}

func run() {
	if list := os.Getenv(CgroupsVar); list != "" {
		os.Unsetenv(CgroupsVar)
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
