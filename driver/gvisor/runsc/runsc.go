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
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/runsc/cli"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/cmd/sentry/sentrycmd"
	"gvisor.dev/gvisor/runsc/cmd/util"

	"github.com/berth-dev/berth/driver/gvisor/runsc/called"
)

// names are those that the engine gives itself; "exe" is of /proc/self/exe.
var names = []string{called.Name, sentry, "runsc-gofer", "runsc-exec", "exe"}

// sentry is the name of the process that a sandbox is.
const sentry = "runsc-sandbox"

// Dispatch runs the engine and ends the program if it was called by one of the
// engine's names; otherwise it does nothing. It must come first in main.
func Dispatch() {
	name := filepath.Base(os.Args[0])
	for _, n := range names {
		if name == n {
			runtime.MemProfileRate = 0 // nobody asks where memory was taken
			switch name {
			case called.Name:
				// A command is over before it has left much.
				debug.SetGCPercent(-1)
				debug.SetMemoryLimit(64 << 20)
			case sentry:
				bound()
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

// kept are the capabilities that a sentry may have at all.
var kept = []uintptr{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_SYS_PTRACE,
}

// bound takes all others out of this process's bounding set. The engine does that
// too, later, when it has more threads: each capability is a system call of all of
// them, for which all are stopped. What cannot be done here is left to the engine,
// which fails if it cannot.
func bound() {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		if !slices.Contains(kept, c) {
			_, _, _ = syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, c, 0)
		}
	}
}
