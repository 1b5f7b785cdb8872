package test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// TestKilledWhileRollingBack kills the server at moments spread over the taking of
// a snapshot, of one that runs and of one that is paused, over the way back to one, and
// over a create from one. The sandbox is as it was or as it was then, a snapshot that is
// listed serves, and of all else nothing is left.
func TestKilledWhileRollingBack(t *testing.T) {
	r := startReal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s, err := r.Create(ctx, sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id := string(s.ID)
	if _, err := r.sh(ctx, id, "echo then > /workspace/file; head -c 20000000 /dev/urandom > /workspace/big; (sleep 1000; :) & echo $! > /workspace/pid"); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	if _, err := r.Snapshot(ctx, id, sandbox.SnapshotRequest{Name: "then"}); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(begin)
	snapshot := func(round int) error {
		_, err := r.Snapshot(ctx, id, sandbox.SnapshotRequest{Name: fmt.Sprint("round-", round)})
		return err
	}
	verbs := []func(round int) error{
		func(int) error {
			_, err := r.Rollback(ctx, id, sandbox.RollbackRequest{Snapshot: "then"})
			return err
		},
		snapshot,
		func(int) error {
			_, err := r.Create(ctx, sandbox.CreateRequest{Snapshot: "then", Name: "child"})
			return err
		},
		snapshot, // of one that is paused
	}
	const rounds = 16
	for round := range rounds {
		if _, err := r.sh(ctx, id, fmt.Sprintf("echo %d > /workspace/file", round)); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if round%4 == 3 {
			if _, err := r.Pause(ctx, id); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		done := make(chan error, 1)
		go func() { done <- verbs[round%4](round) }()
		time.Sleep(whole * time.Duration(round) / (rounds - 4)) // the moment is what is tested
		r.kill(t)
		verr := <-done
		r.again(t)
		out, err := r.sh(ctx, id, "cat /workspace/file; kill -0 $(cat /workspace/pid) && echo lives")
		if then, now := "then\nlives\n", fmt.Sprintf("%d\nlives\n", round); err != nil || out != now && (out != then || round%4 != 0) {
			t.Errorf("round %d (the verb gave %v): inside is %q, %v", round, verr, out, err)
		}
		if round%4 == 2 {
			if err := r.Remove(ctx, "child"); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
				t.Errorf("round %d: what was being created: %v", round, err)
			}
		}
		if n := len(r.engines()); n != 1 {
			t.Errorf("round %d: %d machines of one sandbox", round, n)
		}
	}
	r.wantListedToServe(ctx, t)
	if err := r.suite.run([]string{"BERTH_URL=" + r.url, "BERTH_DATA=" + r.data}, "rm", "--all", "-f"); err != nil {
		t.Fatal(err)
	}
	if left := r.leftovers(t); len(left) > 0 {
		t.Errorf("left on the machine: %q", left)
	}
	r.wantEmptyArchive(t)
}

// wantListedToServe makes a sandbox of every snapshot, and removes it.
func (r *real) wantListedToServe(ctx context.Context, t *testing.T) {
	t.Helper()
	all, err := r.Snapshots(ctx, sandbox.SnapshotQuery{})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d snapshots, %v", len(all), err)
	}
	for _, sn := range all {
		child, err := r.Create(ctx, sandbox.CreateRequest{Snapshot: string(sn.ID)})
		if err != nil {
			t.Errorf("snapshot %s is listed and does not serve: %v", sn.Name, err)
			continue
		}
		if out, err := r.sh(ctx, string(child.ID), "cat /workspace/file"); err != nil || out == "" {
			t.Errorf("snapshot %s: %q, %v", sn.Name, out, err)
		}
		if err := r.RemoveSnapshot(ctx, string(sn.ID)); err != nil {
			t.Error(err)
		}
	}
}

// wantEmptyArchive waits until a sweep has taken what no snapshot needs. After one that
// failed the next comes a minute later.
func (r *real) wantEmptyArchive(t *testing.T) {
	t.Helper()
	var left []string
	for range 1500 {
		left, _ = filepath.Glob(filepath.Join(r.data, "blobs", "sha256", "*", "*"))
		more, _ := filepath.Glob(filepath.Join(r.data, "snapshots", "*", "*"))
		if left = append(left, more...); len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("%d files are left of what was kept; the server said %s", len(left), tail(r.log))
}
