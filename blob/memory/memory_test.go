package memory_test

import (
	"sync"
	"testing"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/blobtest"
	"github.com/berth-dev/berth/blob/memory"
)

func TestContract(t *testing.T) {
	var stores sync.Map // by folder: the same one opened again has the same blobs
	blobtest.Run(t, func(_ *testing.T, dir string) blob.Store {
		s, _ := stores.LoadOrStore(dir, &memory.Store{})
		return s.(*memory.Store)
	})
}
