// Command berth is the server that gives every agent its own computer, and the
// client that drives it.
package main

import (
	"context"
	"os"

	"github.com/berth-dev/berth/driver/gvisor/runsc"
)

func main() {
	runsc.Dispatch() // does not return when this is the sandbox engine
	os.Exit(run(context.Background(), commandLine(os.Args), os.Stdin, os.Stdout, os.Stderr))
}
