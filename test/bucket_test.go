package test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/blob/s3/s3test"
	"github.com/berth-dev/berth/sandbox"
)

// TestSnapshotsInABucket keeps snapshots in a real S3 server, which then fails, and
// brings one back on a server that has nothing of it on its own disk.
func TestSnapshotsInABucket(t *testing.T) {
	bucket := s3test.Start(t, "")
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretKey)
	blobs := "s3://" + filepath.Base(bucket.Folder) + "/berth?region=us-east-1&endpoint=" + bucket.URL
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("0f", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := startReal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	if err := r.stop(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	r.with(t, "--blobs", blobs, "--snapshot-cache", "1B", "--snapshot-key", key)
	s, err := r.Create(ctx, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.sh(ctx, string(s.ID), "echo kept > /workspace/file; head -c 5000000 /dev/urandom > /workspace/big"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Snapshot(ctx, string(s.ID), sandbox.SnapshotRequest{Name: "one"}); err != nil {
		t.Fatal(err)
	}
	backup, err := r.Backup(ctx, string(s.ID), sandbox.BackupRequest{Path: "/workspace", Excludes: []string{"big"}})
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(r.data, "blobs", "*", "*", "*")); len(left) > 0 {
		t.Errorf("%d blobs are on the server's own disk", len(left))
	}

	sealedAll(t, bucket.Folder)

	// The bucket refuses: nothing is left, and the sandbox runs on.
	for status, kind := range map[int]sandbox.Kind{507: sandbox.Exhausted, 403: sandbox.Unavailable} {
		bucket.Trouble(func(w http.ResponseWriter, r *http.Request, real http.Handler) {
			if r.Method == http.MethodPut {
				w.WriteHeader(status)
				return
			}
			real.ServeHTTP(w, r)
		})
		_, err := r.Snapshot(ctx, string(s.ID), sandbox.SnapshotRequest{Name: "two"})
		if sandbox.KindOf(err) != kind || sandbox.HintOf(err) == "" {
			t.Errorf("a bucket that answers %d: %v", status, err)
		}
	}
	bucket.Trouble(nil)
	if out, err := r.sh(ctx, string(s.ID), "cat /workspace/file"); err != nil || out != "kept\n" {
		t.Errorf("%q, %v", out, err)
	}

	r.kill(t)
	r.with(t, "--blobs", blobs, "--snapshot-cache", "1B")
	_, err = r.Create(ctx, sandbox.CreateRequest{Snapshot: "one"})
	if sandbox.KindOf(err) != sandbox.Unsupported || !strings.Contains(sandbox.HintOf(err), "snapshots.key") {
		t.Errorf("without the key: %v", err)
	}
	if err := r.stop(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	r.with(t, "--blobs", blobs, "--snapshot-cache", "1B", "--snapshot-key", key)
	child, err := r.Create(ctx, sandbox.CreateRequest{Snapshot: "one"})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := r.sh(ctx, string(child.ID), "cat /workspace/file"); err != nil || out != "kept\n" {
		t.Errorf("%q, %v", out, err)
	}

	if u, err := r.RestoreBackup(ctx, string(child.ID), sandbox.RestoreBackupRequest{Backup: string(backup.ID), Path: "/workspace/back"}); err != nil || u.Files != 1 {
		t.Errorf("put back: %+v, %v", u, err)
	}
	if err := r.RemoveBackup(ctx, string(backup.ID)); err != nil {
		t.Error(err)
	}

	// Another server may not have the same prefix.
	other := &instance{suite: r.suite, data: filepath.Join(t.TempDir(), "data"), log: filepath.Join(t.TempDir(), "log")}
	if err := other.start("--blobs", blobs); err == nil {
		t.Error("two servers share a prefix")
		other.stop(os.Interrupt)
	} else if !strings.Contains(err.Error(), "belongs to another server") {
		t.Errorf("the other said %v", err)
	}
	if err := r.RemoveSnapshot(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		left, _ := filepath.Glob(filepath.Join(bucket.Folder, "berth", "sha256", "*", "*"))
		if len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("blobs are left in the bucket:\n%s", tail(r.log))
}

// with starts the server with more flags.
func (r *real) with(t *testing.T, flags ...string) {
	t.Helper()
	if err := r.start(flags...); err != nil {
		t.Fatal(err)
	}
	r.meet(t)
}

// sealedAll makes sure that nothing in the bucket can be read without the key, but
// whose it is.
func sealedAll(t *testing.T, folder string) {
	t.Helper()
	blobs := 0
	err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || filepath.Base(path) == "owner.json" {
			return err
		}
		blobs++
		b, err := os.ReadFile(path)
		if !strings.HasPrefix(string(b), "berthS1\n") {
			t.Errorf("%s is not sealed: %.20q", path, b)
		}
		return err
	})
	if err != nil || blobs == 0 {
		t.Errorf("%d blobs, %v", blobs, err)
	}
}
