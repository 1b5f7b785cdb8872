package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/sandbox"
)

// TestFolderOfBlobsHasOneOwner: two servers on one folder would sweep each other's.
func TestFolderOfBlobsHasOneOwner(t *testing.T) {
	blobs := filepath.Join(t.TempDir(), "deep", "blobs")
	mine, others := t.TempDir(), t.TempDir()
	f := &archiveFlags{blobs: blobs, cache: defaultCache}
	for range 2 {
		if _, err := f.open(t.Context(), mine); err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.open(t.Context(), others)
	if sandbox.KindOf(err) != sandbox.Conflict || sandbox.HintOf(err) == "" {
		t.Errorf("another server: %v", err)
	}
	for what, bad := range map[string]archiveFlags{
		"a bucket with a password": {blobs: "s3://key:secret@bucket", cache: defaultCache}, "no size": {cache: "much"},
	} {
		if _, err := bad.open(t.Context(), mine); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestKeyThatIsNotThere: a server that was told to seal does not start without.
func TestKeyThatIsNotThere(t *testing.T) {
	loose := filepath.Join(t.TempDir(), "loose")
	if err := os.WriteFile(loose, []byte(strings.Repeat("0f", 32)), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]sandbox.Kind{filepath.Join(t.TempDir(), "none"): sandbox.NotFound, loose: sandbox.Forbidden} {
		f := &archiveFlags{cache: defaultCache, key: path}
		if _, err := f.open(t.Context(), t.TempDir()); sandbox.KindOf(err) != kind || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
}
