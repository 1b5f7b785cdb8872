package disk_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/blobtest"
	"github.com/berth-dev/berth/blob/disk"
	"github.com/berth-dev/berth/sandbox"
)

func open(t *testing.T, dir string) blob.Store {
	t.Helper()
	s, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestContract(t *testing.T) { blobtest.Run(t, open) }

// files lists the regular files beneath dir.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestDamageIsNoticed(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	whole := bytes.Repeat([]byte("whole"), 10_000)
	info, err := s.Put(t.Context(), bytes.NewReader(whole))
	if err != nil {
		t.Fatal(err)
	}
	path := files(t, dir)[0]
	flipped := bytes.Clone(whole)
	flipped[len(flipped)/2] ^= 1
	for _, b := range [][]byte{flipped, whole[:len(whole)-1], append(whole, 0), {}} {
		if err := errors.Join(os.Remove(path), os.WriteFile(path, b, 0o400)); err != nil {
			t.Fatal(err)
		}
		blobtest.Damaged(t, s, info.Digest)
	}
	if _, err := s.Put(t.Context(), bytes.NewReader(whole[:])); err != nil {
		t.Fatal(err)
	}
	r, err := s.Open(t.Context(), info.Digest, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("storing the bytes again does not heal the blob: %v", err)
	}
}

func TestFailedPutLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	broken := errors.New("broken")
	pr, pw := io.Pipe()
	go func() {
		pw.Write(make([]byte, 100_000))
		pw.CloseWithError(broken)
	}()
	if _, err := s.Put(t.Context(), pr); !errors.Is(err, broken) {
		t.Errorf("put: %v", err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestOpenSparesTheLiving opens a store while a writer is at work in it.
func TestOpenSparesTheLiving(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "tmp", "put-dead"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := s.Put(t.Context(), pr)
		done <- err
	}()
	if _, err := pw.Write([]byte("living")); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	if left := files(t, dir); len(left) != 1 || strings.HasSuffix(left[0], "put-dead") {
		t.Errorf("beneath tmp: %v, want the living writer's file alone", left)
	}
	pw.Close()
	if err := <-done; err != nil {
		t.Errorf("put: %v", err)
	}
}

func TestFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: a full disk; mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatalf("mount: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	s := open(t, dir)
	_, err := s.Put(t.Context(), io.LimitReader(zeros{}, 8<<20))
	if sandbox.KindOf(err) != sandbox.Exhausted || sandbox.HintOf(err) == "" {
		t.Errorf("put: %v (hint %q), want exhausted with a hint", err, sandbox.HintOf(err))
	}
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := s.Put(t.Context(), strings.NewReader("small")); err != nil {
		t.Errorf("put what fits: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// crashVar names the store to the child that is to be killed.
const crashVar = "BERTH_TEST_PUT_UNTIL_KILLED"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashVar); dir != "" {
		fmt.Fprintln(os.Stderr, putUntilKilled(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func body(i int) []byte { return bytes.Repeat([]byte(fmt.Sprint(i, " ")), 1+i*731%50_000) }

func putUntilKilled(dir string) error {
	s, err := disk.Open(dir)
	if err != nil {
		return err
	}
	for i := 0; ; i++ {
		info, err := s.Put(context.Background(), bytes.NewReader(body(i)))
		if err != nil {
			return err
		}
		if _, err := fmt.Println(info.Digest); err != nil {
			return err
		}
	}
}

// TestKilled kills a storing process: every blob it was told of is there, every
// blob that is there is whole, and nothing else is.
func TestKilled(t *testing.T) {
	dir := t.TempDir()
	for round := range 4 {
		acknowledged := killAfter(t, dir, 15+17*round)
		s := open(t, dir)
		for _, d := range acknowledged {
			if _, err := s.Stat(t.Context(), d); err != nil {
				t.Errorf("round %d: acknowledged, but %v", round, err)
			}
		}
		listed := 0
		err := s.List(t.Context(), func(i blob.Info) error {
			listed++
			r, err := s.Open(t.Context(), i.Digest, 0)
			if err != nil {
				return err
			}
			defer r.Close()
			_, err = io.Copy(io.Discard, r)
			return err
		})
		if err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if left := files(t, dir); len(left) != listed {
			t.Errorf("round %d: %d files for %d blobs", round, len(left), listed)
		}
	}
}

func killAfter(t *testing.T, dir string, n int) []blob.Digest {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashVar+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said []blob.Digest
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		d, err := blob.ParseDigest(lines.Text())
		if err != nil {
			t.Errorf("the child said: %v", err)
			break
		}
		if said = append(said, d); len(said) == n {
			cmd.Process.Kill()
		}
	}
	if cmd.Wait() == nil || len(said) < n {
		t.Fatalf("the child ended by itself after %d blobs", len(said))
	}
	return said
}
