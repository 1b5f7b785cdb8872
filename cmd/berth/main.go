// Command berth is the server that gives every agent its own computer, and the
// client that drives it.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(run(context.Background(), commandLine(os.Args), os.Stdin, os.Stdout, os.Stderr))
}
