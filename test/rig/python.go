package rig

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Python runs a file of dir with the packages that its requirements.txt names, all of
// them with their versions, and fails the test with what it prints if it fails.
func Python(t *testing.T, dir string, env []string, file string) {
	t.Helper()
	program := environment(t, dir)
	cmd := exec.CommandContext(t.Context(), program, "-W", "ignore", file)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err != nil || testing.Verbose() {
		t.Logf("python %s:\n%s", file, out.Bytes())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// environment makes a virtual environment for a requirements.txt, once for each version
// of that file, and returns its Python. They are kept in .cache of the module.
func environment(t *testing.T, dir string) string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(dir, "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(Root(t), ".cache", "python", fmt.Sprintf("%.12x", sha256.Sum256(list)))
	program, done := filepath.Join(kept, "bin", "python3"), filepath.Join(kept, "done")
	if err := os.MkdirAll(filepath.Dir(kept), 0o755); err != nil {
		t.Fatal(err)
	}
	defer alone(t, kept+".lock")()
	if _, err := os.Stat(done); err == nil {
		return program
	}
	if err := os.RemoveAll(kept); err != nil { // a half that was left
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"python3", "-m", "venv", kept},
		{program, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary", ":all:", "--disable-pip-version-check", "-r", file},
	} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", argv, errors.Join(err, t.Context().Err()), out)
		}
	}
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return program
}
