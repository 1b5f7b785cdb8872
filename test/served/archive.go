package served

import (
	"testing"

	"github.com/berth-dev/berth/blob/memory"
	"github.com/berth-dev/berth/snapshot"
)

// newArchive keeps snapshots and backups in memory.
func newArchive(t testing.TB) *snapshot.Shelf {
	t.Helper()
	store, err := snapshot.New(snapshot.Config{Blobs: &memory.Store{}, Saves: 2, Loads: 2})
	if err != nil {
		t.Fatal(err)
	}
	shelf, err := snapshot.OpenShelf(store, t.TempDir(), "", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return shelf
}
