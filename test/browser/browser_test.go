// Package browser opens a preview in Chromium, as a person does.
package browser

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// TestHotReload runs Vite's dev server in a sandbox. Chromium, which trusts the
// server's own authority and nothing else new, opens its preview and sees a change of
// a module in place. BERTH_SCREENSHOTS names a folder for what it looked like.
func TestHotReload(t *testing.T) {
	chromium := need(t, "chromium")
	s := rig.Start(t, "--https-listen", "127.0.0.1:0")
	packages := rig.Packages(t, ".")
	box, err := s.Create(t.Context(), sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := string(box.ID)
	upload(t, s, id, "site")
	upload(t, s, id, filepath.Join(packages, "node_modules"), "--exclude=node_modules/playwright-core")
	dev := sandbox.Command{Name: "dev", Cwd: "/workspace/site", Detach: true, Argv: []string{"node", "../node_modules/vite/bin/vite.js", "--port", "5173"}}
	if _, err := s.StartProcess(t.Context(), id, dev); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WaitPort(t.Context(), id, "dev", sandbox.PortWait{Port: 5173, Timeout: 2 * time.Minute}); err != nil {
		t.Fatal(err)
	}
	shots := os.Getenv("BERTH_SCREENSHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	env := []string{"BERTH_URL=" + s.URL, "BERTH_API_KEY=" + s.Key}
	url := exec.CommandContext(t.Context(), rig.Binary(t), "url", id, "5173", "--once")
	url.Env = append(os.Environ(), env...)
	preview, err := url.Output()
	if err != nil {
		t.Fatal(err)
	}
	rig.Node(t, ".", append(env, "HOME="+home(t, filepath.Join(s.Data, "ca.pem")), "CHROMIUM="+chromium, "BERTH="+rig.Binary(t),
		"SANDBOX="+id, "PREVIEW="+strings.TrimSpace(string(preview)), "SHOTS="+shots), "reload.mjs")
}

// need finds a program, and skips the test where it cannot be had.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("SKIPPED: %s is not there; that a dev server's hot reload passes a preview is not tried by this run (tools/browser.sh installs what it takes)", name)
	}
	return path
}

// upload puts a folder beneath /workspace.
func upload(t *testing.T, s *rig.Server, id, dir string, options ...string) {
	t.Helper()
	tar := exec.CommandContext(t.Context(), "tar", append(options, "-C", filepath.Dir(dir), "-cf", "-", filepath.Base(dir))...)
	stream, err := tar.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := tar.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Unpack(t.Context(), id, "/workspace", sandbox.UnpackOptions{}, stream); err != nil {
		t.Error(err)
	}
	if err := tar.Wait(); err != nil || t.Failed() {
		t.Fatal(err)
	}
}

// home is a home folder whose browsers trust an authority.
func home(t *testing.T, authority string) string {
	t.Helper()
	tool, dir := need(t, "certutil"), t.TempDir()
	list := filepath.Join(dir, ".pki", "nssdb")
	if err := os.MkdirAll(list, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-N", "--empty-password"}, {"-A", "-t", "C,,", "-n", "berth", "-i", authority}} {
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), tool, append([]string{"-d", "sql:" + list}, args...)...)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("certutil %s: %v\n%s", args[0], err, out.Bytes())
		}
	}
	return dir
}
