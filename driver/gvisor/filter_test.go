package gvisor_test

import (
	"runtime"
	"slices"
	"testing"

	"gvisor.dev/gvisor/pkg/seccomp"
	"gvisor.dev/gvisor/pkg/sentry/platform"
	_ "gvisor.dev/gvisor/pkg/sentry/platform/platforms"
	"gvisor.dev/gvisor/runsc/boot/filter"
	"gvisor.dev/gvisor/runsc/boot/filter/config"
)

// TestTheFilterIsThatOfTheRules compares the filter of system calls that was compiled
// ahead with one that is compiled of the rules now.
func TestTheFilterIsThatOfTheRules(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skipf("SKIPPED LOUDLY: on %s each engine compiles its filter", runtime.GOARCH)
	}
	systrap, err := platform.Lookup("systrap")
	if err != nil {
		t.Fatal(err)
	}
	opt := filter.Options{Platform: systrap.PrecompiledSeccompInfo()[0], HostFilesystem: true, ControllerFD: 17}
	ahead, ok := filter.GetPrecompiled(opt.ConfigKey())
	if !ok {
		t.Fatalf("no filter is compiled ahead for %s", opt.ConfigKey())
	}
	got, err := ahead.RenderInstructions(opt.Vars())
	if err != nil {
		t.Fatal(err)
	}
	rules, denied := config.Rules(opt)
	program := &seccomp.Program{
		RuleSets: []seccomp.RuleSet{{Rules: denied}, {Rules: rules, Action: seccomp.Allow}},
		Options:  config.SeccompOptions(opt),
	}
	want, _, err := program.Build()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the filter compiled ahead has %d instructions, that of the rules %d, and they differ: go run ./tools/enginefilter", len(got), len(want))
	}
}
