// Package e2b drives a real server with E2B's own clients, as they are published.
package e2b

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/test/rig"
)

// TestPlainHTTP is the way of clients that are told the server's address.
func TestPlainHTTP(t *testing.T) {
	s := rig.Start(t)
	rig.Node(t, ".", []string{
		"E2B_API_KEY=e2b_" + strings.TrimPrefix(s.Key, "berth_"),
		"E2B_API_URL=" + s.URL + "/e2b",
		"E2B_SANDBOX_URL=" + s.URL,
	})
}
