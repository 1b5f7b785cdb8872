package main

import (
	"math"

	"golang.org/x/sys/unix"
)

// keepDescriptors lets no program that the guest starts inherit a descriptor
// that the guest itself was started with.
func keepDescriptors() {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	for fd := 3; fd < 1024; fd++ { // a kernel without close_range
		unix.CloseOnExec(fd)
	}
}
