package netgw

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/berth-dev/berth/sandbox"
)

// FuzzReply sends what a hostile sandbox may to the gateway's port for questions. An
// answer must be a message, and must answer that one.
func FuzzReply(f *testing.F) {
	q := new(dns.Msg)
	q.SetQuestion("example.com.", dns.TypeA)
	good, err := q.Pack()
	if err != nil {
		f.Fatal(err)
	}
	notify := append([]byte(nil), good...)
	notify[2] |= dns.OpcodeNotify << 3
	two := append([]byte(nil), good...)
	two[5] = 2
	for _, b := range [][]byte{good, notify, two, good[:dnsHeader], good[:20], {}} {
		f.Add(b, true)
	}
	g, err := New(Config{Resolvers: nil, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, io.EOF }})
	if err != nil {
		f.Fatal(err)
	}
	l := &Link{gateway: g, tenant: g.tenant(boxID), ctx: f.Context()}
	f.Fuzz(func(t *testing.T, b []byte, stream bool) {
		out := l.reply(b, stream)
		if out == nil {
			if len(b) >= dnsHeader && b[2]&0x80 == 0 {
				t.Fatalf("%x got no answer", b)
			}
			return
		}
		m := new(dns.Msg)
		if err := m.Unpack(out); err != nil {
			t.Fatalf("%x was answered with %x: %v", b, out, err)
		}
		if !m.Response || m.Id != binary.BigEndian.Uint16(b) || m.Rcode == dns.RcodeSuccess {
			t.Fatalf("%x was answered with %v, without any policy", b, m)
		}
	})
}

// TestQuestionsOnOneConnection asks several times on one connection, sends
// something that is no question on another, and opens more than are served at once.
func TestQuestionsOnOneConnection(t *testing.T) {
	w := newWorld(t, &sandbox.Policy{Profile: sandbox.ProfileOpen}, nil)
	w.dns.set("A example.com.", site)
	server := net.JoinHostPort(GatewayAddr.String(), "53")
	dial := func() *dns.Conn {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c, err := w.guest.dial(ctx, "tcp", server)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		return &dns.Conn{Conn: c}
	}
	one := dial()
	for range 5 {
		q := new(dns.Msg)
		q.SetQuestion("example.com.", dns.TypeA)
		if err := one.WriteMsg(q); err != nil {
			t.Fatal(err)
		}
		if r, err := one.ReadMsg(); err != nil || r.Id != q.Id || len(r.Answer) != 1 {
			t.Fatalf("answer %v, error %v", r, err)
		}
	}
	bad := dial()
	if _, err := bad.Conn.Write([]byte("\x00\x03GET")); err != nil {
		t.Fatal(err)
	}
	if n, err := bad.Conn.Read(make([]byte, 1)); err == nil {
		t.Fatalf("what is no message was answered with %d bytes", n)
	}
	for range dnsConnections + 3 { // each waits for a place, which the one before gives up
		c := dial()
		q := new(dns.Msg)
		q.SetQuestion("example.com.", dns.TypeA)
		if err := c.WriteMsg(q); err != nil {
			t.Fatal(err)
		}
		if _, err := c.ReadMsg(); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}
