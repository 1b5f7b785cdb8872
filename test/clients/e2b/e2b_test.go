// Package e2b drives a real server with E2B's own clients, as they are published.
package e2b

import (
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/test/rig"
)

// TestPlainHTTP is the way of clients that are told the server's address.
func TestPlainHTTP(t *testing.T) {
	s := rig.Start(t)
	s.CodeTemplate(t)
	rig.Node(t, ".", []string{
		"E2B_API_KEY=" + key(s),
		"E2B_API_URL=" + s.URL + "/e2b",
		"E2B_SANDBOX_URL=" + s.URL,
		"E2B_VOLUME_API_URL=" + s.URL + "/e2b",
	})
}

// TestByDomain is the way of clients that are told the server's domain alone.
func TestByDomain(t *testing.T) {
	address := free(t)
	s := rig.Start(t, "--https-listen", address)
	s.MCPTemplate(t)
	_, port, _ := net.SplitHostPort(address)
	rig.Node(t, ".", []string{
		"E2B_API_KEY=" + key(s),
		"E2B_DOMAIN=berth.localhost:" + port,
		"NODE_EXTRA_CA_CERTS=" + filepath.Join(s.Data, "ca.pem"),
		"NODE_OPTIONS=--import=./resolve.mjs",
	}, "ports.test.mjs", "files.test.mjs", "commands.test.mjs", "volumes.test.mjs", "mcp.bydomain.mjs")
}

func key(s *rig.Server) string { return "e2b_" + strings.TrimPrefix(s.Key, "berth_") }

// free is an address of this machine that nobody listens on now.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
