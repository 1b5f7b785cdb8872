package engine_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/berth-dev/berth/guest"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/sandbox"
)

// puppetGuests gives every puppet of a world a guest, in a folder of its own.
type puppetGuests struct {
	t    *testing.T
	ctx  context.Context
	done sync.WaitGroup
}

// puppetGuest is the guest of one puppet, which begins when it is first dialled.
type puppetGuest struct {
	once    sync.Once
	err     error
	address string
	secret  guestapi.Secret
}

// withGuests lets the puppets of a world have guests until the test ends.
func withGuests(t *testing.T, w *world) {
	ctx, cancel := context.WithCancel(context.Background())
	g := &puppetGuests{t: t, ctx: ctx}
	t.Cleanup(func() { cancel(); g.done.Wait() })
	w.guests = g
}

func (g *puppetGuests) dial(ctx context.Context, p *puppet) (net.Conn, error) {
	in := &p.inside
	in.once.Do(func() { in.err = g.begin(p.id, in) })
	if in.err != nil {
		return nil, in.err
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", in.address)
	if err != nil {
		return nil, sandbox.Errorf("dial", sandbox.Unavailable, "%w", err)
	}
	if err := guestapi.WritePreface(c, in.secret); err != nil {
		c.Close()
		return nil, sandbox.Errorf("dial", sandbox.Unavailable, "%w", err)
	}
	return c, nil
}

func (g *puppetGuests) begin(id sandbox.ID, in *puppetGuest) error {
	dir := g.t.TempDir()
	for _, f := range []string{"workspace", "home/user", "tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, f), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "workspace", "file"), []byte("content"), 0o644); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	in.address = l.Addr().String()
	inner := guest.New(guest.Config{SandboxID: string(id), Version: "puppet", Secret: in.secret, Scratch: dir})
	g.done.Go(func() { _ = inner.Serve(g.ctx, l) }) // it ends with its context
	return nil
}
