package hostile

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// TestABuildMeetsItsPolicy: the steps of a build may reach what the template's
// sandboxes may, and no more. What was done under one policy is done again under
// another.
func TestABuildMeetsItsPolicy(t *testing.T) {
	h := newHouse(t, nil)
	// The second step fails: nobody needs the root.
	build := func(p *sandbox.Policy, step string) (failed, said string) {
		t.Helper()
		var all strings.Builder
		_, err := h.BuildTemplate(t.Context(), sandbox.BuildRequest{Name: "app", Policy: p, Dockerfile: "FROM " + sandbox.DefaultTemplate + "\nRUN " + step + "\nRUN exit 3\n"},
			func(p sandbox.Progress) { all.WriteString(p.Log + "\n") })
		if err == nil {
			t.Fatal("a build with a step that fails ended well")
		}
		return err.Error(), all.String()
	}
	const good, other = "curl -sS http://good.outside.example/", "curl -sS --max-time 60 http://other.outside.example/ && echo"
	if failed, said := build(onlyGood(), good); !strings.Contains(failed, "step 2") || !strings.Contains(said, "good.outside.example at "+site) {
		t.Errorf("what is allowed: %s after %s", failed, said)
	}
	if failed, said := build(nil, other); !strings.Contains(failed, "step 2") || !strings.Contains(said, "other.outside.example at "+otherSite) {
		t.Errorf("another name without a policy: %s after %s", failed, said)
	}
	came := h.outside.count(otherSite + ":80")
	for _, step := range []string{other, "curl -sS --max-time 60 http://" + otherSite + "/"} {
		if failed, said := build(onlyGood(), step); !strings.Contains(failed, "step 1") {
			t.Errorf("%s: %s after %s", step, failed, said)
		}
	}
	if n := h.outside.count(otherSite+":80") - came; n > 0 {
		t.Errorf("what the policy refuses was reached %d times", n)
	}
}
