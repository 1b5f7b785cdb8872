// Package miniflare drives a real server from a Worker in workerd, with the vendor's
// package as it is published.
package miniflare

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/berth-dev/berth/test/rig"
)

func TestLife(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: real sandboxes need root; nothing of workerd is tested by this run")
	}
	socket := filepath.Join(t.TempDir(), "docker.sock")
	s := rig.Start(t, "--docker-socket", socket)
	restart := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.Restart(t, syscall.SIGKILL, "--docker-socket", socket)
		if err := json.NewEncoder(w).Encode(map[string]string{"url": s.URL}); err != nil {
			t.Error(err)
		}
	}))
	defer restart.Close()
	rig.Node(t, ".", []string{
		"BERTH_DOCKER_SOCKET=" + socket,
		"BERTH_URL=" + s.URL,
		"BERTH_API_KEY=" + s.Key,
		"RESTART_URL=" + restart.URL,
	}, "life.test.mjs")
}
