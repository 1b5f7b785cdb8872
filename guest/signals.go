package guest

import (
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lastSignal is the highest signal number of Linux.
const lastSignal = 64

// parseSignal reads "SIGTERM", "term" or "15".
func parseSignal(s string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= 1 && n <= lastSignal {
		return syscall.Signal(n), nil
	}
	if len(s) <= 16 {
		name := strings.ToUpper(s)
		if !strings.HasPrefix(name, "SIG") {
			name = "SIG" + name
		}
		if n := unix.SignalNum(name); n != 0 {
			return n, nil
		}
	}
	return 0, refuse(invalid, "give a name such as SIGTERM or a number from 1 to 64", "%.40q is not a signal", s)
}

// signalName is "SIGKILL", or the number where there is no name.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return strconv.Itoa(int(s))
}
