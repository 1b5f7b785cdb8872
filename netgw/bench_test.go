package netgw

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/sandbox"
)

// BenchmarkStream measures one stream through the gateway, from a kernel in the
// sandbox's place to one on the outside, and for comparison through a veth pair
// between the same two: the ratio of the figures of one run is what counts.
func BenchmarkStream(b *testing.B) {
	outside, guest := newOutside(b), inside(b)
	source := listenIn(b, outside, func(c net.Conn) {
		block := make([]byte, 1<<20)
		for {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	sink := listenIn(b, outside, func(c net.Conn) { io.Copy(io.Discard, c) })
	veth(b, outside, guest)
	g, err := New(Config{Dial: outside.dial})
	if err != nil {
		b.Fatal(err)
	}
	if err := g.Apply(b.Context(), &sandbox.Sandbox{ID: boxID}); err != nil {
		b.Fatal(err)
	}
	l, err := g.Open(guest, boxID)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	for _, way := range []struct{ name, host string }{{"gateway", site}, {"veth", vethAddr}} {
		_, down, _ := net.SplitHostPort(source)
		_, up, _ := net.SplitHostPort(sink)
		b.Run(way.name+"/down", func(b *testing.B) { stream(b, guest, net.JoinHostPort(way.host, down), false) })
		b.Run(way.name+"/up", func(b *testing.B) { stream(b, guest, net.JoinHostPort(way.host, up), true) })
		b.Run(way.name+"/connect", func(b *testing.B) { connects(b, guest, net.JoinHostPort(way.host, up)) })
	}
}

const vethAddr = "198.18.77.1"

func listenIn(b *testing.B, ns *Namespace, f func(net.Conn)) string {
	b.Helper()
	var l net.Listener
	if err := ns.within(func() (err error) { l, err = net.Listen("tcp4", "0.0.0.0:0"); return err }); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); f(c) }()
		}
	}()
	return l.Addr().String()
}

func veth(b *testing.B, outside, guest *Namespace) {
	b.Helper()
	end := func(ns *Namespace, name, addr string) error {
		return ns.within(func() error {
			h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
			if err != nil {
				return err
			}
			defer h.Close()
			l, err := h.LinkByName(name)
			if err != nil {
				return err
			}
			a, err := netlink.ParseAddr(addr)
			if err != nil {
				return err
			}
			if err := h.AddrAdd(l, a); err != nil {
				return err
			}
			return h.LinkSetUp(l)
		})
	}
	err := outside.within(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		return h.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1", PeerNamespace: netlink.NsFd(guest.f.Fd())})
	})
	if err == nil {
		err = end(outside, "v0", vethAddr+"/30")
	}
	if err == nil {
		err = end(guest, "v1", "198.18.77.2/30")
	}
	if err != nil {
		b.Fatal(err)
	}
}

func stream(b *testing.B, guest *Namespace, to string, up bool) {
	c, err := guest.dial(context.Background(), "tcp", to)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	block := make([]byte, 1<<20)
	b.SetBytes(1 << 20)
	began := processorTime(b)
	defer func() {
		b.ReportMetric((processorTime(b)-began).Seconds()*1024/float64(b.N), "cpu-s/GiB")
	}()
	for b.Loop() {
		if up {
			_, err = c.Write(block)
		} else {
			_, err = io.ReadFull(c, block)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// processorTime is what this process, both ends and what lies between, has used.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func connects(b *testing.B, guest *Namespace, to string) {
	for b.Loop() {
		c, err := guest.dial(context.Background(), "tcp", to)
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
