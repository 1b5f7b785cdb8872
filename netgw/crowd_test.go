package netgw

import (
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/berth-dev/berth/sandbox"
)

// TestACrowd opens ten thousand connections from one sandbox: what it holds is
// bounded, the refusals are counted rather than written one by one, and another
// sandbox notices nothing.
func TestACrowd(t *testing.T) {
	const attempts, most = 10_000, 200
	w := newWorld(t, nil, func(c *Config) { c.Flows, c.Total = most, most*2 })
	w.listenTCP(site+":80", echo)
	other := inside(t)
	if err := w.gateway.Apply(t.Context(), &sandbox.Sandbox{ID: "bbbbbbbbbbbbbbbbbbbb"}); err != nil {
		t.Fatal(err)
	}
	w.link(other, "bbbbbbbbbbbbbbbbbbbb")
	var held sync.Map
	var open atomic.Int64
	var crowd sync.WaitGroup
	turn := make(chan struct{}, 300)
	for n := range attempts {
		turn <- struct{}{}
		crowd.Go(func() {
			defer func() { <-turn }()
			if c, err := w.connect(site + ":80"); err == nil {
				open.Add(1)
				held.Store(n, c)
			}
		})
		if n%1000 == 999 { // the other one, in the midst of it
			c, err := other.dial(t.Context(), "tcp", site+":80")
			if err != nil {
				t.Fatalf("the other sandbox, after %d: %v", n, err)
			}
			if err := says(c, "hello\n"); err != nil {
				t.Fatalf("the other sandbox, after %d: %v", n, err)
			}
			c.Close()
		}
	}
	crowd.Wait()
	if n := open.Load(); n < most || n > most+most/2 {
		t.Errorf("%d connections are open, want %d", n, most)
	}
	if n := w.gateway.Counts(); n.Open > most+1 || n.Full < attempts/2 {
		t.Errorf("the gateway counts %+v", n)
	}
	if n := runtime.NumGoroutine(); n > 20*most {
		t.Errorf("%d goroutines", n)
	}
	if n := len(w.notes.list()); n > 3*refusalBurst {
		t.Errorf("%d entries about one crowd", n)
	}
	held.Range(func(_, c any) bool { c.(net.Conn).Close(); return true })
	for end := time.Now().Add(2 * time.Minute); w.gateway.Counts().Open > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d are still open", w.gateway.Counts().Open)
		}
	}
	w.mustEcho(site + ":80")
}

// TestAFloodOfQuestions asks for more names than one sandbox may.
func TestAFloodOfQuestions(t *testing.T) {
	w := newWorld(t, nil, nil)
	var refused int
	for n := range 3 * questionBurst {
		name := fmt.Sprintf("q%d.tunnel.example", n)
		w.dns.set("A "+name+".", site)
		if r := w.ask(name, dns.TypeA); r.Rcode == dns.RcodeRefused {
			refused++
		}
	}
	if refused < questionBurst/2 {
		t.Errorf("%d of %d questions were refused", refused, 3*questionBurst)
	}
	if r := w.ask("q1.tunnel.example", dns.TypeA); len(r.Answer) != 1 {
		t.Errorf("what was asked before is not answered: %v", r)
	}
	long := strings.Repeat("c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0.", 6) + "tunnel.example"
	if r := w.ask(long, dns.TypeA); r.Rcode != dns.RcodeNameError {
		t.Errorf("a long name was answered: %v", r)
	}
	for _, q := range w.dns.questions() {
		if strings.Contains(q, "c2vjcmv0") {
			t.Errorf("upstream was asked %s", q)
		}
	}
}

// TestCachesAreApart shows one account nothing of what another has asked.
func TestCachesAreApart(t *testing.T) {
	w := newWorld(t, nil, nil)
	w.dns.set("A example.com.", site)
	w.ask("example.com", dns.TypeA)
	w.ask("example.com", dns.TypeA)
	if n := len(w.dns.questions()); n != 1 {
		t.Errorf("upstream was asked %d times by one", n)
	}
	if err := w.gateway.Apply(t.Context(), &sandbox.Sandbox{ID: w.id, Account: "other"}); err != nil {
		t.Fatal(err)
	}
	w.ask("example.com", dns.TypeA)
	if n := len(w.dns.questions()); n != 2 {
		t.Errorf("upstream was asked %d times by two", n)
	}
}

// TestAResetPassesOn ends one side hard, and wants the other to end so too.
func TestAResetPassesOn(t *testing.T) {
	w := newWorld(t, nil, nil)
	ended := make(chan error, 1)
	w.listenTCP(site+":80", func(c net.Conn) {
		b := make([]byte, 6)
		io.ReadFull(c, b)
		c.Write(b)
		_, err := c.Read(b)
		ended <- err
	})
	c := w.mustEcho(site + ":80")
	c.(*net.TCPConn).SetLinger(0)
	c.Close()
	if err := <-ended; err == nil || err == io.EOF {
		t.Errorf("the upstream saw %v, want a reset", err)
	}
	w.listenTCP(site+":81", func(c net.Conn) {
		io.ReadFull(c, make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
	})
	c = w.mustDial(site + ":81")
	io.WriteString(c, "x")
	c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("the sandbox saw %v, want a reset", err)
	}
}

// TestForgedSources sends packets from addresses that are not the sandbox's, and
// one from its own to show that these are seen.
func TestForgedSources(t *testing.T) {
	w := newWorld(t, nil, nil)
	w.listenTCP(site+":80", echo)
	send := func(from string) {
		err := w.guest.within(func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_RAW)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Sendto(fd, forgedSYN(from, site, 12288), 0, &unix.SockaddrInet4{Addr: [4]byte{93, 184, 216, 34}})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, from := range []string{"10.200.0.77", "10.200.0.1", "8.8.8.8", "127.0.0.1"} {
		send(from)
	}
	w.ask("after.example", dns.TypeA) // comes after them
	seen := func() bool { n := w.gateway.Counts(); return n.Allowed+n.Failed+n.Denied+n.Open > 0 }
	if seen() {
		t.Errorf("a forged source was served: %+v", w.gateway.Counts())
	}
	send(GuestAddr.String())
	for end := time.Now().Add(2 * time.Minute); !seen(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the sandbox's own packet was not seen: this test shows nothing")
		}
	}
}

func forgedSYN(from, to string, port uint16) []byte {
	b := make([]byte, header.IPv4MinimumSize+header.TCPMinimumSize)
	src, dst := tcpip.AddrFromSlice(net.ParseIP(from).To4()), tcpip.AddrFromSlice(net.ParseIP(to).To4())
	header.IPv4(b).Encode(&header.IPv4Fields{TotalLength: uint16(len(b)), TTL: 64, Protocol: uint8(header.TCPProtocolNumber), SrcAddr: src, DstAddr: dst})
	syn := header.TCP(b[header.IPv4MinimumSize:])
	syn.Encode(&header.TCPFields{SrcPort: port, DstPort: 80, DataOffset: header.TCPMinimumSize, Flags: header.TCPFlagSyn, WindowSize: 65535})
	syn.SetChecksum(^syn.CalculateChecksum(header.PseudoHeaderChecksum(header.TCPProtocolNumber, src, dst, header.TCPMinimumSize)))
	return b
}

// TestCloseDuringHandshakes closes a link while the sandbox begins connections that
// it never completes.
func TestCloseDuringHandshakes(t *testing.T) {
	w := newWorld(t, nil, nil)
	w.listenTCP(site+":80", echo)
	for n := range 20 {
		ns := inside(t)
		l, err := w.gateway.Open(ns, w.id)
		if err != nil {
			t.Fatal(err)
		}
		if err := ns.within(func() error { return begin(100, n) }); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- l.Close() }()
		select {
		case <-closed:
		case <-time.After(time.Minute):
			t.Fatal("closing a link whose sandbox completes no handshake hangs")
		}
	}
}

// begin sends the first packets of so many connections. The kernel, which knows
// nothing of them, has no way on which to refuse the answers.
func begin(count, round int) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	nowhere := &net.IPNet{IP: net.ParseIP(site).To4(), Mask: net.CIDRMask(32, 32)}
	if err := h.RouteReplace(&netlink.Route{Dst: nowhere, Type: unix.RTN_BLACKHOLE}); err != nil {
		return err
	}
	dev, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	frame := append(append(append([]byte{}, gatewayMAC...), guestMAC...), 0x08, 0x00)
	for n := range count {
		syn := forgedSYN(GuestAddr.String(), site, uint16(20000+round*count+n))
		if err := unix.Sendto(fd, append(frame[:len(frame):len(frame)], syn...), 0, &unix.SockaddrLinklayer{Ifindex: dev.Index}); err != nil {
			return err
		}
	}
	return nil
}
