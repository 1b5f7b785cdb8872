package guest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/berth-dev/berth/guestapi"
)

// addressed is a listener of pipes whose other ends come from an address of
// choice.
type addressed struct {
	conns chan net.Conn
	done  chan struct{}
}

type fromAddress struct {
	net.Conn
	addr net.Addr
}

func (c fromAddress) RemoteAddr() net.Addr { return c.addr }

func (a *addressed) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case <-a.done:
		return nil, net.ErrClosed
	}
}
func (a *addressed) Close() error   { close(a.done); return nil }
func (a *addressed) Addr() net.Addr { return &net.TCPAddr{} }

// knock connects from an address.
func (a *addressed) knock(ip string) net.Conn {
	ours, theirs := net.Pipe()
	a.conns <- fromAddress{theirs, &net.TCPAddr{IP: net.ParseIP(ip), Port: 40000}}
	return ours
}

var testSecret = guestapi.Secret{1, 2, 3}

const testPeer = "10.0.0.1"

// openDoor serves a guest behind a door that can be knocked on.
func openDoor(t *testing.T) *addressed {
	t.Helper()
	a := &addressed{conns: make(chan net.Conn), done: make(chan struct{})}
	g := New(Config{Secret: testSecret, Peer: testPeer, Scratch: t.TempDir()})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Serve(ctx, a) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return a
}

const request = "GET /files?path=/none HTTP/1.1\r\nHost: guest\r\n\r\n"

// exchange sends bytes and returns all that comes back before the close.
func exchange(t *testing.T, c net.Conn, sent []byte) []byte {
	t.Helper()
	defer c.Close()
	c.SetDeadline(time.Now().Add(time.Minute))
	go c.Write(sent)
	got := make([]byte, 0, 4096)
	for {
		b := make([]byte, 512)
		n, err := c.Read(b)
		got = append(got, b[:n]...)
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
				t.Fatalf("it was not closed: %v", err)
			}
			return got
		}
		if len(got) > 0 && bytes.Contains(got, []byte("\r\n\r\n")) {
			return got
		}
	}
}

func preface(t *testing.T, s guestapi.Secret) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := guestapi.WritePreface(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTheHostIsAnswered(t *testing.T) {
	a := openDoor(t)
	for _, ip := range []string{testPeer, "::ffff:" + testPeer} {
		if got := exchange(t, a.knock(ip), append(preface(t, testSecret), request...)); !bytes.HasPrefix(got, []byte("HTTP/1.1 ")) {
			t.Errorf("from %s: %q", ip, got)
		}
	}
}

func TestAStrangerGetsNothingButAClose(t *testing.T) {
	a := openDoor(t)
	wrong := testSecret
	wrong[31] ^= 1
	for what, sent := range map[string][]byte{
		"no preface":     []byte(request + "and enough bytes to be taken for a preface"),
		"wrong secret":   append(preface(t, wrong), request...),
		"wrong protocol": append([]byte("berth/2\n"), append(testSecret[:], request...)...),
		"HTTP/2":         []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00 and more"),
		"zeroes":         make([]byte, 4096),
	} {
		if got := exchange(t, a.knock(testPeer), sent); len(got) > 0 {
			t.Errorf("%s: got %q", what, got)
		}
	}
	for _, ip := range []string{"10.0.0.2", "127.0.0.1", "::1", "::ffff:10.0.0.2", "10.0.0.11"} {
		if got := exchange(t, a.knock(ip), append(preface(t, testSecret), request...)); len(got) > 0 {
			t.Errorf("the right preface from %s: got %q", ip, got)
		}
	}
}

// TestStrangersDoNotShutTheHostOut fills the places of those that say nothing:
// one more waits, and when one leaves the host comes in.
func TestStrangersDoNotShutTheHostOut(t *testing.T) {
	a := openDoor(t)
	var silent []net.Conn
	for range maxUnknown {
		silent = append(silent, a.knock(testPeer))
	}
	answer := make(chan []byte, 1)
	late := a.knock(testPeer)
	go func() {
		defer close(answer)
		answer <- exchange(t, late, append(preface(t, testSecret), request...))
	}()
	for _, c := range silent {
		c.Close()
	}
	if got := <-answer; len(got) == 0 {
		t.Error("who waited got nothing")
	}
}

func FuzzPreface(f *testing.F) {
	f.Add([]byte(request))
	f.Add(append([]byte("berth/1\n"), testSecret[:]...))
	f.Add(append([]byte("berth/1\n"), make([]byte, 31)...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, sent []byte) {
		r := bytes.NewReader(sent)
		ok, err := guestapi.ReadPreface(r, testSecret)
		right := append([]byte("berth/1\n"), testSecret[:]...)
		if ok != bytes.HasPrefix(sent, right) {
			t.Errorf("%q was %v", sent, ok)
		}
		if (err != nil) != (len(sent) < len(right)) {
			t.Errorf("%d bytes: %v", len(sent), err)
		}
		if err == nil && r.Len() != len(sent)-len(right) {
			t.Errorf("%d bytes were read past it", len(sent)-len(right)-r.Len())
		}
	})
}
