package rig

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// alone waits until no other process holds a lock file, and holds it until release is
// called: packages of tests that run at once share what they install.
func alone(t *testing.T, path string) (release func()) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if err == nil {
			return func() { f.Close() }
		}
		if err != unix.EINTR {
			f.Close()
			t.Fatalf("lock %s: %v", path, err)
		}
	}
}
