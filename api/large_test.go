package api_test

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestLargeBodiesAreNotHeld passes bodies through every floor, the guest's
// included, and looks at what the process holds meanwhile.
func TestLargeBodiesAreNotHeld(t *testing.T) {
	const size, room = 256 << 20, 64 << 20
	v := visit(t)
	files := v.create("") + "/files"
	noise := func() io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{1}), size) }
	want := sha256.New()
	if _, err := io.Copy(want, noise()); err != nil {
		t.Fatal(err)
	}
	most := highest(t)
	send := func(method, path string, body io.Reader) *http.Response {
		t.Helper()
		r := v.s.Request(t, method, path, "")
		if body != nil {
			r.Body, r.ContentLength = io.NopCloser(body), -1
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(resp, err)
		}
		return resp
	}
	send("PUT", files+"?path=/in/big&parents=true", noise()).Body.Close()
	archive := send("GET", files+"/archive?path=/in", nil)
	send("PUT", files+"/archive?path=/out", archive.Body).Body.Close()
	archive.Body.Close()
	resp := send("GET", files+"?path=/out/big", nil)
	defer resp.Body.Close()
	got := sha256.New()
	if n, err := io.Copy(got, resp.Body); err != nil || n != size || string(got.Sum(nil)) != string(want.Sum(nil)) {
		t.Errorf("%d bytes came back: %v", n, err)
	}
	if held := most(); held > room {
		t.Errorf("the process held %d MiB more than at first", held>>20)
	}
}

// highest watches the heap; what it returns tells how far it rose.
func highest(t *testing.T) func() int64 {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse)
	}
	runtime.GC()
	first, most := heap(), int64(0)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				most = max(most, heap()-first)
			case <-done:
				return
			}
		}
	})
	end := sync.OnceFunc(func() { close(done); wg.Wait() })
	t.Cleanup(end)
	return func() int64 { end(); return most }
}
