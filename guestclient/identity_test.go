package guestclient_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/berth-dev/berth/guest"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// startLasting starts a command whose stream breaks with cancel.
func startLasting(t *testing.T, c *guestclient.Client) (id string, cancel context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ev, err := c.Start(ctx, sandbox.Command{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ev.Close() })
	e, err := ev.Recv()
	if err != nil || e.Started == nil {
		t.Fatalf("%+v %v", e, err)
	}
	return e.Started.ID, cancel
}

func lives(t *testing.T, c *guestclient.Client, id string) bool {
	t.Helper()
	all, err := c.Processes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		if p.ID == id {
			return p.Exit == nil
		}
	}
	return false
}

// TestHold: commands outlive their streams while a hold lasts, and no longer.
func TestHold(t *testing.T) {
	c := serve(t)
	if err := c.Hold(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	id, cancel := startLasting(t, c)
	cancel()
	for range 20 {
		if !lives(t, c, id) {
			t.Fatal("it ended with its stream, in a hold")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := c.Hold(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for lives(t, c, id) {
		time.Sleep(5 * time.Millisecond) // the test's deadline bounds it
	}
	for _, d := range []time.Duration{-time.Second, time.Hour} {
		if err := c.Hold(t.Context(), d); sandbox.KindOf(err) != sandbox.Invalid {
			t.Errorf("a hold of %v: %v", d, err)
		}
	}
}

// TestIdentify: a guest of another sandbox keeps what runs, lets the new secret in
// alone, and closes every connection from before.
func TestIdentify(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	was, is := guestapi.Secret{1}, guestapi.Secret{2}
	var renamed []string
	g := guest.New(guest.Config{SandboxID: "parent", Secret: was, Peer: "127.0.0.1", Scratch: t.TempDir(),
		Rename: func(id, hostname string) error { renamed = append(renamed, id, hostname); return nil }})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	with := func(s guestapi.Secret) *guestclient.Client {
		c := guestclient.New(func(ctx context.Context) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
			if err == nil {
				err = guestapi.WritePreface(conn, s)
			}
			return conn, err
		})
		t.Cleanup(func() { c.Close() })
		return c
	}
	before, teller, after := with(was), with(was), with(is)
	id, _ := startLasting(t, before)
	if _, err := after.Hello(t.Context()); err == nil {
		t.Fatal("a secret that is not set yet has opened it")
	}
	if err := teller.Identify(t.Context(), "child", is, "host", 0); err != nil {
		t.Fatal(err)
	}
	if len(renamed) != 2 || renamed[0] != "child" || renamed[1] != "host" {
		t.Errorf("renamed %q", renamed)
	}
	h, err := after.Hello(t.Context())
	if err != nil || h.SandboxID != "child" {
		t.Fatalf("%+v %v", h, err)
	}
	if _, err := with(was).Hello(t.Context()); err == nil {
		t.Error("the old secret opens it still")
	}
	if _, err := before.Processes(t.Context()); err == nil {
		t.Error("a connection from before is open still")
	}
	if !lives(t, after, id) {
		t.Error("what ran has ended with its connection")
	}
}
