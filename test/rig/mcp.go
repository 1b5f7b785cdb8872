package rig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// MCPSource is what the template mcp-gateway is built from.
const MCPSource = "distribution:bookworm+mcp"

// MCPTemplate makes sure that the server has the template mcp-gateway, as it would be
// built now, and keeps it beneath BERTH_TEST_DATA for later runs. A new one takes about a
// minute, and the network.
func (s *Server) MCPTemplate(t *testing.T) {
	t.Helper()
	made, err := s.BuildTemplate(t.Context(), sandbox.BuildRequest{Name: sandbox.MCPTemplate, From: MCPSource}, nil)
	if err != nil {
		t.Fatalf("build the template %s: %v (%s)", sandbox.MCPTemplate, err, sandbox.HintOf(err))
	}
	if kept := os.Getenv("BERTH_TEST_DATA"); kept != "" {
		if err := keepTemplate(filepath.Join(s.Data, "templates"), filepath.Join(kept, "templates"), made); err != nil {
			t.Fatal(err)
		}
	}
}
