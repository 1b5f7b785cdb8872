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
	build := func(p *sandbox.Policy, step string) (failed string) {
		t.Helper()
		_, err := h.BuildTemplate(t.Context(), sandbox.BuildRequest{Name: "app", Policy: p, Dockerfile: "FROM " + sandbox.DefaultTemplate + "\nRUN " + step + "\nRUN exit 3\n"}, nil)
		if err == nil {
			t.Fatal("a build with a step that fails ended well")
		}
		return err.Error()
	}
	const good, other = "curl -sS http://good.outside.example/", "curl -sS --max-time 60 http://other.outside.example/"
	if failed := build(onlyGood(), good); !strings.Contains(failed, "step 2") || h.outside.count(site+":80") == 0 {
		t.Errorf("what is allowed: %s", failed)
	}
	if failed := build(nil, other); !strings.Contains(failed, "step 2") || h.outside.count(otherSite+":80") == 0 {
		t.Errorf("another name without a policy: %s", failed)
	}
	came := h.outside.count(otherSite + ":80")
	for _, step := range []string{other, "curl -sS --max-time 60 http://" + otherSite + "/"} {
		if failed := build(onlyGood(), step); !strings.Contains(failed, "step 1") {
			t.Errorf("%s: %s", step, failed)
		}
	}
	if n := h.outside.count(otherSite+":80") - came; n > 0 {
		t.Errorf("what the policy refuses was reached %d times", n)
	}
}
