// Package agents drives the bridge of a real server with the sandbox client of the
// OpenAI Agents SDK, as it is published.
package agents

import (
	"testing"

	"github.com/berth-dev/berth/dialect/cloudflare/bridge"
	"github.com/berth-dev/berth/test/rig"
)

func TestSandboxes(t *testing.T) {
	s := rig.Start(t)
	rig.Python(t, ".", []string{"BRIDGE_URL=" + s.URL + bridge.Prefix, "BERTH_API_KEY=" + s.Key}, "sandboxes.py")
}
