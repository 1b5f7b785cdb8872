package engine_test

import (
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
)

// TestBackupsExpire, also while no server runs.
func TestBackupsExpire(t *testing.T) {
	x, b := guestTown(t)
	ctx := operator(t)
	keep := func(ttl int64) sandbox.Backup {
		t.Helper()
		kept, err := x.e.Backup(ctx, "box", sandbox.BackupRequest{Path: "/workspace", TTLSeconds: ttl})
		if err != nil {
			t.Fatal(err)
		}
		return kept
	}
	left := func(want int) {
		t.Helper()
		for range 3000 {
			all, err := x.e.Backups(ctx, "")
			if err != nil {
				t.Fatal(err)
			}
			if len(all) == want {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Fatalf("there are never %d", want)
	}
	soon, later := keep(1), keep(3600)
	if !soon.Expires.After(soon.Created) || !later.Expires.After(soon.Expires) {
		t.Errorf("they expire at %v and %v", soon.Expires, later.Expires)
	}
	left(1)
	keep(1)
	if err := x.e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := x.open(-1, ""); err != nil {
		t.Fatal(err)
	}
	left(1)
	if err := x.e.RemoveBackup(ctx, string(later.ID)); err != nil {
		t.Error(err)
	}
	x.swept(b, "expired")
}
