package main

import (
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"
)

// TestSlowHeader: who does not come to the end of a header is sent away, and holds
// nothing.
func TestSlowHeader(t *testing.T) {
	t.Parallel()
	url, stop, ended := server(t, time.Minute, http.NotFound)
	c, err := net.Dial("tcp", url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: "); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("it is kept: %v", err)
	}
	stop <- syscall.SIGTERM
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
