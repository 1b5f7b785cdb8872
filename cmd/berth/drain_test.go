package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"
)

// server runs serveUntilSignal on a free port.
func server(t *testing.T, drain time.Duration, h http.HandlerFunc) (url string, stop chan os.Signal, ended chan error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop, ended = make(chan os.Signal, 2), make(chan error, 1)
	go func() {
		ended <- serveUntilSignal(context.Background(), []net.Listener{l}, &house{handler: h, streams: func() {}, endless: func() {}}, stop, drain, slog.New(slog.DiscardHandler))
	}()
	return "http://" + l.Addr().String(), stop, ended
}

func TestDrainLetsRequestsEnd(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	url, stop, ended := server(t, time.Hour, func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-leave
		io.WriteString(w, "whole")
	})
	answer := make(chan string, 1)
	go func() {
		resp, err := http.Get(url)
		if err != nil {
			answer <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		answer <- string(b)
	}()
	<-entered
	stop <- syscall.SIGTERM
	close(leave)
	if got := <-answer; got != "whole" {
		t.Errorf("the request under way got %q", got)
	}
	if err := <-ended; err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

func TestDrainIsBounded(t *testing.T) {
	for name, bound := range map[string]time.Duration{"by time": time.Millisecond, "by a second signal": time.Hour} {
		t.Run(name, func(t *testing.T) {
			entered := make(chan struct{})
			url, stop, ended := server(t, bound, func(_ http.ResponseWriter, r *http.Request) {
				close(entered)
				<-r.Context().Done()
			})
			go http.Get(url)
			<-entered
			stop <- syscall.SIGTERM
			stop <- syscall.SIGTERM
			if err := <-ended; err != nil {
				t.Errorf("the server ended with %v", err)
			}
		})
	}
}
