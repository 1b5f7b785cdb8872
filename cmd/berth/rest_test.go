package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestUnmapUnused shows that the program goes on, and which of its mappings are meant.
func TestUnmapUnused(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	var bytes uintptr
	for line := range strings.Lines(string(maps)) {
		_, size, ok := programPages(line, self)
		if ok && (strings.Contains(line, "rw") || !strings.HasSuffix(strings.TrimSpace(line), filepath.Base(self))) {
			t.Errorf("meant: %s", line)
		}
		bytes += size
	}
	if bytes < 1<<20 {
		t.Errorf("%d bytes of the program were found", bytes)
	}
	unmapUnused()
	if _, err := os.ReadFile("/proc/self/maps"); err != nil {
		t.Error(err)
	}
}

func FuzzProgramPages(f *testing.F) {
	for _, s := range []string{
		"00400000-01dec000 r-xp 00000000 fe:00 10018919                           /bin/berth",
		"06a12000-06b00000 rw-p 00000000 fe:00 10018919                           /bin/berth",
		"7f5b87ee0000-7f5b880a0000 rw-p 00000000 00:00 0 ", "-", "z-a r--p 0 0 0 /bin/berth",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if _, size, ok := programPages(line, "/bin/berth"); ok && (size == 0 || !strings.Contains(line, "/bin/berth")) {
			t.Errorf("%q is meant", line)
		}
	})
}
