package guestclient

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// countingConn counts what is written at once.
type countingConn struct {
	net.Conn
	writes *atomic.Int32
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// TestAShortCallIsOnePacket: its body goes out with its header.
func TestAShortCallIsOnePacket(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		all, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Write(all)
	}))
	defer s.Close()
	var writes atomic.Int32
	alone := &inline{dial: func(ctx context.Context) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
		return countingConn{c, &writes}, err
	}}
	defer alone.CloseIdleConnections()
	w := &ways{alone: alone, busy: make(chan struct{}, 1)}
	for n, size := range []int{27, onePacket - 200} {
		text := strings.Repeat("x", size)
		r, err := http.NewRequestWithContext(briefly(t.Context()), "POST", s.URL, struct{ io.Reader }{strings.NewReader(text)})
		if err != nil {
			t.Fatal(err)
		}
		r.ContentLength = int64(size)
		before := writes.Load()
		resp, err := w.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(got) != text {
			t.Errorf("%d bytes came back as %d: %v", size, len(got), err)
		}
		if took := writes.Load() - before; n == 0 && took != 1 {
			t.Errorf("%d bytes went out in %d parts", size, took)
		}
	}
}

// TestABodyThatIsTooShort is refused before anything is sent.
func TestABodyThatIsTooShort(t *testing.T) {
	var writes atomic.Int32
	w := &ways{busy: make(chan struct{}, 1), alone: &inline{dial: func(context.Context) (net.Conn, error) {
		c, _ := net.Pipe()
		return countingConn{c, &writes}, nil
	}}}
	r, err := http.NewRequestWithContext(briefly(t.Context()), "POST", "http://guest", struct{ io.Reader }{strings.NewReader("abc")})
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = 4
	if _, err := w.RoundTrip(r); err == nil || writes.Load() != 0 {
		t.Errorf("sent in %d parts, %v", writes.Load(), err)
	}
	if len(w.busy) != 0 {
		t.Error("its place is not free again")
	}
}
