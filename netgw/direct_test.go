package netgw

import (
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

func noise(n int64) io.Reader { return io.LimitReader(rand.NewChaCha8([32]byte{3}), n) }

// TestSlowReaders sends more than all buffers on the way hold to whoever does not
// read yet, in both directions: all of it arrives, in its order, and then the end.
func TestSlowReaders(t *testing.T) {
	const size = 24<<20 + 7
	w := newWorld(t, nil, nil)
	sum := sha256.New()
	if _, err := io.Copy(sum, noise(size)); err != nil {
		t.Fatal(err)
	}
	want := string(sum.Sum(nil))

	begin, heard := make(chan struct{}), make(chan string, 1)
	w.listenTCP(site+":81", func(c net.Conn) {
		defer c.Close()
		<-begin
		got := sha256.New()
		io.Copy(got, c)
		heard <- string(got.Sum(nil))
	})
	c, err := w.connect(site + ":81")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() { io.Copy(c, noise(size)); c.(*net.TCPConn).CloseWrite() }()
	w.moved(t, func() int64 { return w.gateway.Traffic(w.id).Sent })
	close(begin)
	if got := <-heard; got != want {
		t.Error("up: other bytes arrived")
	}

	w.listenTCP(site+":82", func(c net.Conn) { defer c.Close(); io.Copy(c, noise(size)) })
	d, err := w.connect(site + ":82")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	w.moved(t, func() int64 { return w.gateway.Traffic(w.id).Received })
	got := sha256.New()
	if n, err := io.Copy(got, d); err != nil || n != size || string(got.Sum(nil)) != want {
		t.Errorf("down: %d of %d bytes, or other ones: %v", n, size, err)
	}
}

// moved waits until a count, which began at 0, shows that bytes pass.
func (w *world) moved(t *testing.T, count func() int64) {
	t.Helper()
	for begin := time.Now(); count() < 256<<10; time.Sleep(time.Millisecond) {
		if time.Since(begin) > time.Minute {
			t.Fatal("nothing moves")
		}
	}
}
