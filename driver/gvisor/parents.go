package gvisor

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// parentsFirst puts those in front whose parent is none of them: an engine goes before
// the processes in which its guest's programs run. Otherwise it saw them end, and had the
// time to unmount the disk, and to give back what lies there.
func parentsFirst(pids []int) []int {
	var first, rest []int
	for _, pid := range pids {
		if parent, err := parentOf(pid); err == nil && slices.Contains(pids, parent) {
			rest = append(rest, pid)
		} else {
			first = append(first, pid)
		}
	}
	return append(first, rest...)
}

// parentOf reads a process's parent from proc_pid_stat(5), whose second field may hold
// anything.
func parentOf(pid int) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 2 {
		return 0, fmt.Errorf("/proc/%d/stat: %q", pid, b)
	}
	return strconv.Atoi(fields[1])
}
