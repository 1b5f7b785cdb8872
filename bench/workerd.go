package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// workerdFolder has the Worker that is measured, and the packages that it needs.
const workerdFolder = "test/clients/cloudflare/miniflare"

// workerd is what a Worker's sandboxes take, each time beside the native API's in turn:
// the first command of a new one, a command of one that runs, and many new ones at once.
// It wants node and npm, and is run from the module's root; without those it is left out,
// loudly.
func workerd(ctx context.Context, s *server) ([]row, error) {
	for _, program := range []string{"node", "npm"} {
		if _, err := exec.LookPath(program); err != nil {
			fmt.Fprintf(os.Stderr, "LEFT OUT: workerd is not measured: %v\n", err)
			return nil, nil
		}
	}
	return s.script(ctx, workerdFolder+"/bench.mjs", "BERTH_DOCKER_SOCKET="+s.socket)
}
