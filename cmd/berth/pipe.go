package main

import (
	"os/signal"
	"syscall"
)

// signalIgnoreBrokenPipe makes a reader that goes away an error of the write,
// not a death: the server is told, and what runs for us ends in order.
func signalIgnoreBrokenPipe() { signal.Ignore(syscall.SIGPIPE) }
