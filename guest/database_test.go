package guest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestADatabaseIsReadAnewWhenItChanges(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passwd")
	d := &database{path: path}
	want := func(lines ...string) {
		t.Helper()
		for range 2 { // the second time from memory
			if got := d.read(); !slices.Equal(got, lines) {
				t.Fatalf("read %q, want %q", got, lines)
			}
		}
	}
	replace := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+"+", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+"+", path); err != nil {
			t.Fatal(err)
		}
	}
	want() // not there yet
	replace("a\nb\n")
	want("a", "b")
	replace("c\nd\n") // of the same size
	want("c", "d")
	if err := os.WriteFile(path, []byte("c\nd\ne\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	want("c", "d", "e")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	want()
}

func TestALargeDatabaseIsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	text := strings.Repeat(strings.Repeat("x", 1023)+"\n", maxKept>>10+1)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	d := &database{path: path}
	for range 2 {
		if got := len(d.read()); got != maxKept>>10+1 {
			t.Fatalf("%d lines", got)
		}
	}
	if d.lines != nil || d.stamp.known {
		t.Fatal("it is kept")
	}
}
