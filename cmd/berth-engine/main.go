// Command berth-engine is the gVisor engine with Berth's edits and nothing else: it is
// started several times for each sandbox, and each start costs what it links. It lies
// within berth, which starts it.
package main

import (
	"fmt"
	"os"

	"github.com/berth-dev/berth/driver/gvisor/runsc"
)

func main() {
	runsc.Dispatch() // does not return when this was called by one of the engine's names
	fmt.Fprintln(os.Stderr, "berth-engine: berth starts this program; it does nothing by itself")
	os.Exit(2)
}
