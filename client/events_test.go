package client_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/berth-dev/berth/client"
	"github.com/berth-dev/berth/sandbox"
	"github.com/berth-dev/berth/sandbox/wire"
)

// TestCommandsShareAConnection: one that was followed to its exit leaves its connection
// to the next.
func TestCommandsShareAConnection(t *testing.T) {
	var made atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", wire.TypeRaw)
		out := wire.NewFrameWriter(w)
		if err := out.Event(sandbox.Event{Started: &sandbox.Process{ID: "p1"}}); err != nil {
			t.Error(err)
		}
		http.NewResponseController(w).Flush()
		if err := out.Event(sandbox.Event{Exit: &sandbox.Exit{}}); err != nil {
			t.Error(err)
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			made.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	c := client.New(s.URL, "k")
	defer c.Close()
	const commands = 20
	for range commands {
		events, err := c.Exec(t.Context(), "abcdefghijklmnopqrst", sandbox.Command{Argv: []string{"true"}})
		if err != nil {
			t.Fatal(err)
		}
		outcome(t, events)
		if err := events.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := made.Load(); n == commands {
		t.Errorf("%d commands made %d connections", commands, n)
	}
}
