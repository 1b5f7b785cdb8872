package main

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// confine takes capabilities out of the bounding set of every thread: the guest
// keeps those that it has, and no program that it starts can have or gain them,
// root's and set-uid ones included (capabilities(7)).
func confine(caps []uint) error {
	for _, c := range caps {
		if _, _, errno := syscall.AllThreadsSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c), 0); errno != 0 {
			return fmt.Errorf("drop capability %d: %w", c, errno)
		}
	}
	return nil
}
