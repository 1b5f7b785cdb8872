package tunnel_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/tunnel"
)

// pair is the two ends of a tunnel.
func pair(t *testing.T) (near, far *tunnel.Conn) {
	t.Helper()
	ends := make(chan *tunnel.Conn, 1)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{tunnel.Protocol}})
		if err != nil {
			t.Error(err)
			return
		}
		ends <- tunnel.New(ws)
	}))
	t.Cleanup(s.Close)
	ws, _, err := websocket.Dial(t.Context(), s.URL, &websocket.DialOptions{Subprotocols: []string{tunnel.Protocol}})
	if err != nil {
		t.Fatal(err)
	}
	near, far = tunnel.New(ws), <-ends
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}

// echo is a TCP server that answers, once it has been sent all, with all of it.
func echo(t *testing.T) net.Conn {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, err := io.ReadAll(c)
		if err != nil {
			return
		}
		_, _ = c.Write(all)
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestHalfClose(t *testing.T) {
	near, far := pair(t)
	joined := make(chan error, 1)
	go func() { joined <- tunnel.Join(t.Context(), far, echo(t)) }()
	want := make([]byte, 3<<20)
	rand.Read(want)
	go func() {
		_, _ = near.Write(want)
		_ = near.CloseWrite()
	}()
	got, err := io.ReadAll(near)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d came back: %v", len(got), len(want), err)
	}
	if err := <-joined; err != nil {
		t.Errorf("join: %v", err)
	}
}

func TestCut(t *testing.T) {
	near, far := pair(t)
	ctx, cancel := context.WithCancel(t.Context())
	joined := make(chan error, 1)
	go func() { joined <- tunnel.Join(ctx, far, echo(t)) }()
	cancel()
	if err := <-joined; err == nil {
		t.Error("a join that was ended says that all is well")
	}
	if n, err := near.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("a cut looks like an end: %d %v", n, err)
	}
}

func TestPing(t *testing.T) {
	near, far := pair(t)
	go io.Copy(io.Discard, near)
	go io.Copy(io.Discard, far)
	pinged := make(chan error, 1)
	go func() { pinged <- far.Ping(t.Context(), time.Millisecond, 100*time.Millisecond) }()
	near.Close()
	if err := <-pinged; err == nil {
		t.Error("that the other side has gone is not noticed")
	}
}
