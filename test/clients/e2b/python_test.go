package e2b

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/berth-dev/berth/test/rig"
)

// TestPython drives a server with the Python packages.
func TestPython(t *testing.T) {
	python := environment(t)
	s := rig.Start(t)
	s.CodeTemplate(t)
	s.MCPTemplate(t)
	cmd := exec.CommandContext(t.Context(), python, "-m", "unittest", "test_clients")
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1",
		"E2B_API_KEY="+key(s), "E2B_API_URL="+s.URL+"/e2b", "E2B_SANDBOX_URL="+s.URL, "E2B_VOLUME_API_URL="+s.URL+"/e2b")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// environment installs the packages that requirements.txt names, once for each
// version of that file, and returns their Python. They are kept in .cache of the
// module.
func environment(t *testing.T) (python string) {
	t.Helper()
	const list = "requirements.txt"
	kept := filepath.Join(rig.Root(t), ".cache", "py", fmt.Sprintf("%.12x", sha256.Sum256([]byte(read(t, list)))))
	python = filepath.Join(kept, "bin", "python")
	done := filepath.Join(kept, "done")
	if _, err := os.Stat(done); err == nil {
		return python
	}
	host, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("SKIPPED LOUDLY: there is no python3; E2B's Python packages are not tested by this run")
	}
	if out, err := exec.Command(host, "-c", "import venv, ensurepip").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED LOUDLY: python3 cannot make environments (install python3-venv); E2B's Python packages are not tested by this run: %s", out)
	}
	for _, args := range [][]string{{host, "-m", "venv", "--clear", kept}, {python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", list}} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return python
}
