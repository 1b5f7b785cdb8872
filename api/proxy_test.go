package api_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// connectProxy is an HTTP proxy of CONNECT and of plain requests, upgrades among
// them. It tells what it was asked for.
func connectProxy(t *testing.T, seen chan<- string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Method + " " + r.Host
		up, err := net.Dial("tcp", r.Host)
		if err != nil {
			http.Error(w, err.Error(), 502)
			return
		}
		defer up.Close()
		if r.Method != http.MethodConnect {
			r.Write(up)
		}
		down, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer down.Close()
		if r.Method == http.MethodConnect {
			io.WriteString(down, "HTTP/1.1 200 OK\r\n\r\n")
		}
		var both sync.WaitGroup
		both.Go(func() { io.Copy(up, down); up.Close() })
		both.Go(func() { io.Copy(down, up); down.Close() })
		both.Wait()
	}))
	t.Cleanup(s.Close)
	return s.URL
}
