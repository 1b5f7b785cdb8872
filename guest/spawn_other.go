//go:build !amd64

package guest

import "syscall"

// spawn is the quicker way of one architecture.
func spawn(string, []string, *syscall.ProcAttr) (pid int, ok bool, err error) { return 0, false, nil }
