package test

import (
	"crypto/tls"
	"io"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/test/rig"
)

// TestSlowVisitors: who comes to a door and does not go on is sent away, and others
// pass meanwhile.
func TestSlowVisitors(t *testing.T) {
	t.Parallel() // it waits for most of its time
	socket := filepath.Join(t.TempDir(), "docker.sock")
	data := filepath.Join(t.TempDir(), "data")
	rig.Templates(t, filepath.Join(data, "templates"))
	s := rig.StartIn(t, data, "--driver", "fake", "--https-listen", "127.0.0.1:0", "--docker-socket", socket)
	b, err := s.Create(t.Context(), sandbox.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	share, err := s.Share(t.Context(), string(b.ID), 8000, sandbox.ShareRequest{})
	if err != nil {
		t.Fatal(err)
	}
	preview, err := url.Parse(share.URL)
	if err != nil || preview.Scheme != "https" {
		t.Fatalf("a preview is at %q, %v", share.URL, err)
	}
	plain, secure := strings.TrimPrefix(s.URL, "http://"), net.JoinHostPort("127.0.0.1", preview.Port())
	dial := func(network, address string) func() (net.Conn, error) {
		return func() (net.Conn, error) { return net.Dial(network, address) }
	}
	const half = "GET /v1/status HTTP/1.1\r\nHost: berth.localhost\r\nX-Slow: "
	var all sync.WaitGroup
	for what, v := range map[string]struct {
		dial func() (net.Conn, error)
		says string
	}{
		"half a header":                  {dial("tcp", plain), half},
		"nothing":                        {dial("tcp", plain), ""},
		"nothing, where TLS is spoken":   {dial("tcp", secure), ""},
		"half a handshake":               {dial("tcp", secure), "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"},
		"half a header, within TLS":      {func() (net.Conn, error) { return tls.Dial("tcp", secure, &tls.Config{InsecureSkipVerify: true}) }, half},
		"half a header, at the socket":   {dial("unix", socket), half},
		"nothing, at the socket":         {dial("unix", socket), ""},
		"half a header for a preview":    {dial("tcp", plain), strings.Replace(half, "berth.localhost", preview.Host, 1)},
		"a header without end, in lines": {dial("tcp", plain), strings.TrimSuffix(half, "X-Slow: ") + strings.Repeat("X: y\r\n", 20_000)},
	} {
		for range 5 {
			c, err := v.dial()
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			all.Go(func() {
				defer c.Close()
				io.WriteString(c, v.says) // what is refused meanwhile is as good
				if err := c.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
					t.Error(err)
				}
				if _, err := io.Copy(io.Discard, c); isTimeout(err) {
					t.Errorf("who says %s is kept", what)
				}
			})
		}
	}
	if err := s.Remove(t.Context(), string(b.ID)); err != nil {
		t.Error(err)
	}
	all.Wait()
}

func isTimeout(err error) bool {
	n, ok := err.(net.Error)
	return ok && n.Timeout()
}
