package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

func TestDataDirectoryIsHeldByOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "data")
	first, err := openDataDirectory(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory is %v, %v; want mode 0700", info.Mode(), err)
	}
	_, err = openDataDirectory(t.Context(), path)
	if sandbox.KindOf(err) != sandbox.Conflict || sandbox.HintOf(err) == "" {
		t.Errorf("a second open gave %v; want a conflict with a hint", err)
	}
	if err == nil || !strings.Contains(err.Error(), "process "+strconv.Itoa(os.Getpid())) {
		t.Errorf("%v does not name the process that holds it", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := openDataDirectory(t.Context(), path)
	if err != nil {
		t.Fatalf("after the first let go: %v", err)
	}
	again.Close()
}

// A child that a killed server was about to start has the lock for a moment.
func TestLockOfADeadServerIsWaitedFor(t *testing.T) {
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	path := t.TempDir()
	held, err := openDataDirectory(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.lock.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(held.lock, gone.Process.Pid); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error, 1)
	go func() {
		d, err := openDataDirectory(t.Context(), path)
		if err == nil {
			err = d.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("opened with %v while the lock was held", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; err != nil {
		t.Errorf("after the child let go: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	last, err := openDataDirectory(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	if _, err := openDataDirectory(ctx, path); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("opened beside a server that lives: %v; want a conflict", err)
	}
}

func TestAdminKeyIsMadeOnce(t *testing.T) {
	d, err := openDataDirectory(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	key, err := d.adminKey()
	if err != nil || !keyPattern.MatchString(key) {
		t.Fatalf("adminKey gave %q, %v", key, err)
	}
	if info, err := os.Stat(filepath.Join(d.path, adminKeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file is %v, %v; want mode 0600", info.Mode(), err)
	}
	if again, err := d.adminKey(); err != nil || again != key {
		t.Errorf("the second call gave %q, %v; want the same key", again, err)
	}
	entries, err := os.ReadDir(d.path)
	if err != nil || len(entries) != 2 {
		t.Errorf("the directory holds %v, %v; want the key and the lock", entries, err)
	}
}

func TestDamagedAdminKeyIsTold(t *testing.T) {
	d, err := openDataDirectory(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.WriteFile(filepath.Join(d.path, adminKeyFile), []byte("berth_abc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := d.adminKey(); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
		t.Errorf("adminKey gave %q, %v; want an invalid with a hint", key, err)
	}
}
