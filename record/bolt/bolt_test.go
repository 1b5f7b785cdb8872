package bolt_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/record"
	"github.com/berth-dev/berth/record/bolt"
	"github.com/berth-dev/berth/record/recordtest"
	"github.com/berth-dev/berth/sandbox"
)

func open(t *testing.T, dir string) record.Store {
	t.Helper()
	s, err := bolt.Open(filepath.Join(dir, "records.db"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) { recordtest.Run(t, open) }

func TestFileIsPrivate(t *testing.T) {
	dir := t.TempDir()
	defer open(t, dir).Close()
	info, err := os.Stat(filepath.Join(dir, "records.db"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode().Perm())
	}
}

func TestSecondOpenIsConflict(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	_, err := bolt.Open(filepath.Join(dir, "records.db"))
	if sandbox.KindOf(err) != sandbox.Conflict || sandbox.HintOf(err) == "" {
		t.Errorf("second open: %v (hint %q), want a conflict with a hint", err, sandbox.HintOf(err))
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := open(t, dir).Close(); err != nil {
		t.Errorf("close after the first let go: %v", err)
	}
}

func TestOpenWithoutDirectory(t *testing.T) {
	_, err := bolt.Open(filepath.Join(t.TempDir(), "absent", "records.db"))
	if sandbox.KindOf(err) != sandbox.NotFound || sandbox.HintOf(err) == "" {
		t.Errorf("open: %v (hint %q), want not_found with a hint", err, sandbox.HintOf(err))
	}
}

// TestDamagedFile cuts and overwrites a store at many places. Opening it may
// succeed (the place was free) or be Internal, but never ends the process.
func TestDamagedFile(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for i := range 40 {
		op := record.Op{Key: fmt.Sprintf("k%03d", i), Value: bytes.Repeat([]byte{byte(i)}, 3000)}
		if _, err := s.Commit(t.Context(), record.Txn{Then: []record.Op{op}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "records.db"))
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	try := func(what string, b []byte) {
		path := filepath.Join(t.TempDir(), "records.db")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := bolt.Open(path)
		if err == nil {
			s.Close()
			return
		}
		if refused++; sandbox.KindOf(err) != sandbox.Internal || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v (kind %s, hint %q)", what, err, sandbox.KindOf(err), sandbox.HintOf(err))
		}
	}
	for cut := 1; cut < len(whole); cut += 4096 {
		try(fmt.Sprint("cut to ", cut), whole[:cut])
	}
	for at := 0; at+4096 <= len(whole); at += 4096 {
		b := bytes.Clone(whole)
		copy(b[at:], bytes.Repeat([]byte{0xa5}, 4096))
		try(fmt.Sprint("overwritten at ", at), b)
	}
	if refused == 0 {
		t.Error("no damage was noticed")
	}
}

// TestFullDisk fills a small file system: a commit is refused as Exhausted, the
// entries before it stay, and the store goes on once there is space.
func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: a full disk; mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Fatalf("mount: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	s := open(t, dir)
	defer s.Close()
	value := make([]byte, 100_000)
	n := 0
	var err error
	for ; err == nil && n < 1000; n++ {
		_, err = s.Commit(t.Context(), record.Txn{Then: []record.Op{{Key: fmt.Sprintf("k%04d", n), Value: value}}})
	}
	if sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "" {
		t.Fatalf("commit %d: %v (hint %q), want exhausted with a hint", n, err, sandbox.HintOf(err))
	}
	found, err := s.List(t.Context(), "k", "", 0)
	if err != nil || len(found) != n-1 {
		t.Errorf("%d entries, %v; want the %d acknowledged", len(found), err, n-1)
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatalf("remount: %v", err)
	}
	if _, err := s.Commit(t.Context(), record.Txn{Then: []record.Op{{Key: "after", Value: value}}}); err != nil {
		t.Errorf("commit with space again: %v", err)
	}
}
