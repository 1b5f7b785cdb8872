package snapshot_test

import (
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/blob"
	"github.com/berth-dev/berth/blob/s3/s3test"
	"github.com/berth-dev/berth/snapshot"
)

// far is a bucket at a distance.
const (
	farLatency = 20 * time.Millisecond
	farRate    = 50 << 20 // bytes a second, of all answers together
)

// BenchmarkLoadFromFar loads 64 MiB that do not compress from a bucket that is far away:
// all of it, and what differs from a folder that lies ready.
func BenchmarkLoadFromFar(b *testing.B) {
	bucket := s3test.Start(b, "")
	blobs := &countedBlobs{Store: bucket.Open(b, "far")}
	store := newStore(b, blobs)
	const size = 64 * chunk
	whole := noise(1, size)
	changed := slices.Clone(whole)
	for at := 0; at < size; at += 16 * chunk {
		copy(changed[at:], noise(2, chunk))
	}
	first, second := keepAll(b, openShelf(b, store, b.TempDir(), 0), whole), keepAll(b, openShelf(b, store, b.TempDir(), 0), changed)
	bucket.Trouble(distance())
	load := func(s *snapshot.Shelf, d blob.Digest) {
		_, release, err := s.Take(b.Context(), d)
		if err != nil {
			b.Fatal(err)
		}
		release()
	}
	b.Run("all", func(b *testing.B) {
		before := blobs.read.Load()
		for i := range b.N {
			load(openShelf(b, store, filepath.Join(b.TempDir(), string(rune('a'+i))), 0), second)
		}
		b.ReportMetric(float64(blobs.read.Load()-before)/float64(b.N)/(1<<20), "MiB-fetched/op")
	})
	b.Run("near", func(b *testing.B) {
		fetched := int64(0)
		for i := range b.N {
			b.StopTimer()
			s := openShelf(b, store, filepath.Join(b.TempDir(), string(rune('a'+i))), 1<<30)
			load(s, first)
			before := blobs.read.Load()
			b.StartTimer()
			load(s, second)
			fetched += blobs.read.Load() - before
		}
		b.ReportMetric(float64(fetched)/float64(b.N)/(1<<20), "MiB-fetched/op")
	})
}

// distance lets answers come late, and no quicker than one line carries.
func distance() func(http.ResponseWriter, *http.Request, http.Handler) {
	var mu sync.Mutex
	var free time.Time // when the line is free again
	return func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		time.Sleep(farLatency)
		real.ServeHTTP(slowly{w, func(n int) {
			mu.Lock()
			if now := time.Now(); free.Before(now) {
				free = now
			}
			free = free.Add(time.Duration(n) * time.Second / farRate)
			until := free
			mu.Unlock()
			time.Sleep(time.Until(until))
		}}, r)
	}
}

// slowly is an answer whose bytes wait for their turn.
type slowly struct {
	http.ResponseWriter
	wait func(n int)
}

func (s slowly) Write(p []byte) (int, error) {
	s.wait(len(p))
	return s.ResponseWriter.Write(p)
}
