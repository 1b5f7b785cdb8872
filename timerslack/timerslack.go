// Package timerslack lets the watchers of Go programs sleep longer.
//
// The runtime has a thread that looks, while the program does anything, for calls that
// block and for goroutines that do not yield: every 20 microseconds at first, which the
// kernel makes 70, for it rounds up what a thread sleeps by its timer slack (prctl(2),
// PR_SET_TIMERSLACK). Each look interrupts what runs on that processor. In a program that
// is woken for a few milliseconds at a time, by others that it works with, this costs more
// than is won by handing on a processor some tenths of a millisecond sooner.
package timerslack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// watch is how much longer a watcher may sleep than it asked to.
const watch = 500 * time.Microsecond

// Watcher gives the watcher of a running Go program its slack; pid may be this process. A
// host that does not allow it, and a process that has ended, are no error: nothing changes.
func Watcher(pid int) error {
	tid, err := watcher(pid)
	if err == nil {
		// As of a process, for threads have no such file of their own.
		err = os.WriteFile(fmt.Sprintf("/proc/%d/timerslack_ns", tid), strconv.AppendInt(nil, int64(watch), 10), 0)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}

// watcher is the thread of that purpose: the first that a Go program starts. Where the
// kernel's numbers have begun anew just then it may be another, for which the slack is
// as good as none.
func watcher(pid int) (tid int, err error) {
	dir, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return 0, err
	}
	var tids []int
	for _, e := range dir {
		if tid, err := strconv.Atoi(e.Name()); err == nil && tid != pid {
			tids = append(tids, tid)
		}
	}
	if len(tids) == 0 {
		return 0, fs.ErrNotExist
	}
	return slices.Min(tids), nil
}
