package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Java makes a small Java of this machine's, with a program of one class compiled from
// source, and returns it as a tar: bin/java and the class beside bin. It is made once,
// and kept in .cache of the module. Where no Java is to be had the test is skipped.
func Java(t *testing.T, source string) string {
	t.Helper()
	for _, tool := range []string{"jlink", "javac"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: %s is not there; that Java trusts a sandbox's authority is not tried by this run (apt-get install openjdk-17-jdk-headless)", tool)
		}
	}
	dir := filepath.Join(Root(t), ".cache", "java")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	defer alone(t, dir+".lock")()
	made, half, work := filepath.Join(dir, "java.tar"), filepath.Join(dir, "half.tar"), filepath.Join(dir, "work")
	source, err := filepath.Abs(source)
	if err != nil {
		t.Fatal(err)
	}
	if is, err := os.Stat(made); err == nil {
		if of, err := os.Stat(source); err == nil && of.ModTime().Before(is.ModTime()) {
			return made
		}
	}
	if err := os.RemoveAll(work); err != nil { // a half that was left
		t.Fatal(err)
	}
	for _, argv := range [][]string{
		{"jlink", "--add-modules", "java.base,jdk.crypto.ec", "--strip-debug", "--no-header-files", "--no-man-pages", "--output", work},
		{"javac", "--release", "11", "-d", work, source},
		{"tar", "-cf", half, "-C", work, "."},
	} {
		if out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", argv, err, out)
		}
	}
	if err := os.RemoveAll(work); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(half, made); err != nil {
		t.Fatal(err)
	}
	return made
}
