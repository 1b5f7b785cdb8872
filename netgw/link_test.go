package netgw

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inside is a namespace whose own kernel stands for the sandbox: it has the
// sandbox's address on the TAP.
func inside(t testing.TB) *Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: namespaces need root")
	}
	ns, err := NewNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// serve answers every connection to the sandbox's address with f.
func serve(t testing.TB, ns *Namespace, f func(net.Conn)) uint16 {
	t.Helper()
	var l net.Listener
	err := ns.within(func() (err error) {
		l, err = net.Listen("tcp4", GuestAddr.String()+":0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c) }()
		}
	}()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

func open(t testing.TB, ns *Namespace) *Link {
	t.Helper()
	g, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := g.Open(ns, "sandboxsandboxsandbo")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func dial(t testing.TB, l *Link, port uint16) net.Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := l.DialGuest(ctx, port)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestBytesPassBothWays(t *testing.T) {
	ns := inside(t)
	port := serve(t, ns, func(c net.Conn) { io.Copy(c, c) })
	l := open(t, ns)
	defer l.Close()
	c := dial(t, l, port)
	defer c.Close()
	if from := c.LocalAddr().String(); !strings.HasPrefix(from, GatewayAddr.String()+":") {
		t.Errorf("the sandbox is dialled from %s, want the gateway", from)
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // many segments, cut and uncut
	go c.Write(sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back changed, %v", len(got), err)
	}
}

func TestALinkIsTakenUpAgain(t *testing.T) {
	ns := inside(t)
	port := serve(t, ns, func(c net.Conn) { io.WriteString(c, "hello") })
	for range 5 {
		l := open(t, ns)
		c := dial(t, l, port)
		if b, err := io.ReadAll(c); string(b) != "hello" {
			t.Fatalf("%q, %v", b, err)
		}
		c.Close()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCloseDuringAFlood closes links while frames pour in.
func TestCloseDuringAFlood(t *testing.T) {
	ns := inside(t)
	port := serve(t, ns, func(c net.Conn) {
		block := make([]byte, 1<<20)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	for range 40 {
		l := open(t, ns)
		c := dial(t, l, port)
		if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
			t.Fatal(err)
		}
		go io.Copy(io.Discard, c)
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Fatal("closing a busy link hangs")
		}
	}
}

func TestWhatTheSandboxDialsIsRefused(t *testing.T) {
	ns := inside(t)
	l := open(t, ns)
	defer l.Close()
	for _, to := range []string{"10.200.0.1:80", "192.0.2.1:443", "127.0.0.2:1", "169.254.169.254:80", "10.0.0.1:22"} {
		err := ns.within(func() error {
			c, err := (&net.Dialer{Timeout: 30 * time.Second}).Dial("tcp4", to)
			if err == nil {
				c.Close()
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "refused") {
			t.Errorf("dialling %s from inside: %v, want a refusal", to, err)
		}
	}
}

// TestMalformedFrames sends what no honest stack would, then uses the link.
func TestMalformedFrames(t *testing.T) {
	ns := inside(t)
	port := serve(t, ns, func(c net.Conn) { io.WriteString(c, "hello") })
	l := open(t, ns)
	defer l.Close()
	err := ns.within(func() error {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		eth := append(append(append([]byte{}, gatewayMAC...), guestMAC...), 0x08, 0x00)
		for n := range 400 {
			frame := append(append([]byte{}, eth...), bytes.Repeat([]byte{byte(n), 0x45, 0xff}, n)...)
			if n%3 == 0 && len(frame) > 14 {
				frame[14] = 0x4f // options that are not there
			}
			if n%5 == 0 {
				frame[0] = 0xff // another's address
			}
			if n%7 == 0 {
				frame[12] = byte(n) // another protocol
			}
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: dev.Index}); err != nil && err != unix.EINVAL && err != unix.EMSGSIZE {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, l, port)
	defer c.Close()
	if b, err := io.ReadAll(c); string(b) != "hello" {
		t.Errorf("after malformed frames: %q, %v", b, err)
	}
}

func BenchmarkDownload(b *testing.B) {
	ns := inside(b)
	port := serve(b, ns, func(c net.Conn) {
		block := make([]byte, 1<<20)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	l := open(b, ns)
	defer l.Close()
	c := dial(b, l, port)
	defer c.Close()
	b.SetBytes(1 << 20)
	for b.Loop() {
		if _, err := io.CopyN(io.Discard, c, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}
