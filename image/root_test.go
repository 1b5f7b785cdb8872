package image

import (
	"fmt"
	"os"
	"testing"
)

// killedVar makes the test binary the child that is to be killed in a build.
const killedVar = "BERTH_TEST_BUILD_UNTIL_KILLED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedVar); dir != "" {
		fmt.Fprintln(os.Stderr, buildUntilKilled(dir, os.Getenv(killedVar+"_FROM")))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// needRoot skips, loudly, what only root can do: files get other owners.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: unpacking and building need root")
	}
}
