package guestclient_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/guest"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/guestclient"
	"github.com/berth-dev/berth/sandbox"
)

// serve runs a guest on a scratch folder and returns a client of it.
func serve(t *testing.T) *guestclient.Client {
	t.Helper()
	c, dir := serveDir(t)
	if err := os.Mkdir(filepath.Join(dir, "workspace"), 0o755); err != nil {
		t.Fatal(err)
	}
	return c
}

// serveDir is serve that gives the scratch folder too, which is empty.
func serveDir(t *testing.T) (*guestclient.Client, string) {
	t.Helper()
	dir := t.TempDir()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secret := guestapi.Secret{1, 2, 3}
	g := guest.New(guest.Config{SandboxID: "abc", Version: "test", Secret: secret, Peer: "127.0.0.1", Scratch: dir})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, l) }()
	c := guestclient.New(func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", l.Addr().String())
		if err == nil {
			err = guestapi.WritePreface(conn, secret)
		}
		return conn, err
	})
	t.Cleanup(func() {
		c.Close()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return c, dir
}

// result is all that a process did.
type result struct {
	stdout, stderr bytes.Buffer
	missed         int64
	exit           *sandbox.Exit
}

func collect(t *testing.T, ev sandbox.Events) *result {
	t.Helper()
	r := &result{}
	for {
		e, err := ev.Recv()
		if errors.Is(err, io.EOF) {
			return r
		}
		if err != nil {
			t.Fatalf("recv: %v", err)
		}
		switch {
		case e.Exit != nil:
			r.exit = e.Exit
		case e.Missed > 0:
			r.missed += e.Missed
		case e.Stream == sandbox.Stdout:
			r.stdout.Write(e.Data)
		case e.Stream == sandbox.Stderr:
			r.stderr.Write(e.Data)
		}
	}
}

func TestRunAndFiles(t *testing.T) {
	c := serve(t)
	h, err := c.Hello(t.Context())
	if err != nil || h.SandboxID != "abc" || h.Protocol != 1 {
		t.Fatalf("hello: %+v %v", h, err)
	}
	ev, err := c.Start(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}})
	if err != nil {
		t.Fatal(err)
	}
	r := collect(t, ev)
	if r.stdout.String() != "out\n" || r.stderr.String() != "err\n" || r.exit == nil || r.exit.Code != 7 {
		t.Fatalf("got %q %q %+v", r.stdout.String(), r.stderr.String(), r.exit)
	}
	if _, err := c.WriteFile(t.Context(), "/a/b.txt", sandbox.WriteOptions{Parents: true}, strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	body, info, err := c.ReadFile(t.Context(), "/a/b.txt", sandbox.ReadRange{Offset: 1, Length: 3})
	if err != nil || info.Size != 5 {
		t.Fatalf("%+v %v", info, err)
	}
	got, err := io.ReadAll(body)
	body.Close()
	if string(got) != "ell" || err != nil {
		t.Fatalf("%q %v", got, err)
	}
	_, _, err = c.ReadFile(t.Context(), "/a/none", sandbox.ReadRange{})
	if sandbox.KindOf(err) != sandbox.NotFound {
		t.Fatalf("missing file: %v", err)
	}
	t.Log(err)
	_, err = c.Start(t.Context(), sandbox.Command{Argv: []string{"nonesuch"}})
	if sandbox.KindOf(err) != sandbox.NotFound {
		t.Fatalf("missing program: %v", err)
	}
	t.Log(err, "|", sandbox.HintOf(err))
}
