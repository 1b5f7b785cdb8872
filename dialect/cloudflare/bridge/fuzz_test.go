package bridge

import (
	"os/exec"
	"path"
	"strings"
	"testing"
)

// FuzzQuote holds quoting against the shell that reads it.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a b", "'", "\\", "$(x)", "a\nb", "~", "-n", "ä", "!", "#", "a=b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsRune(s, 0) || len(s) > 10_000 {
			return
		}
		out, err := exec.CommandContext(t.Context(), "bash", "-c", "printf %s. "+quote(s)).Output()
		if err != nil || string(out) != s+"." {
			t.Errorf("%q came as %q, %v", s, out, err)
		}
	})
}

// FuzzPaths holds what is let through against the folder that it must stay in.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{"workspace/x", "../x", "/workspace/..", "workspace2", "//", "a/./b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, given := range []string{s, "/" + s} {
			p, ok := inWorkspace(given)
			if ok && (path.Clean(p) != p || p != workspace && !strings.HasPrefix(p, workspace+"/")) {
				t.Errorf("%q gave %q", given, p)
			}
		}
		all, err := excludesOf(s)
		for _, p := range all {
			if err != nil || !strings.HasPrefix(p, "/") || strings.Contains(p, "/../") || strings.Contains(p, ",") {
				t.Errorf("%q gave %q, %v", s, p, err)
			}
		}
	})
}
