package netgw

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// turns dials a guest that gives back what it gets, and says so.
func turns(t *testing.T) (*Link, net.Conn) {
	t.Helper()
	ns := inside(t)
	port := serve(t, ns, func(c net.Conn) { io.Copy(c, c) })
	l := open(t, ns)
	t.Cleanup(func() { l.Close() })
	c := dial(t, l, port)
	t.Cleanup(func() { c.Close() })
	c.(interface{ TakeTurns() }).TakeTurns()
	return l, c
}

// TestTurns: where questions and answers follow each other, each question says that the
// answer before it has come; after the last one that is said alone.
func TestTurns(t *testing.T) {
	const questions = 50
	l, c := turns(t)
	sent := l.stack.Stats().TCP.SegmentsSent
	var b [4]byte
	for try := 1; ; try++ {
		before := sent.Value()
		for range questions {
			if _, err := c.Write([]byte("what")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, b[:]); err != nil || string(b[:]) != "what" {
				t.Fatalf("%q, %v", b, err)
			}
		}
		n := sent.Value() - before
		if n < questions*3/2 {
			break
		}
		if try == 100 { // a machine that is busy takes longer for a turn than an answer waits
			t.Fatalf("%d questions took %d packets, at each of %d tries", questions, n, try)
		}
	}
	// The guest's kernel has kept what it sent until it knows that it has come.
	last := sent.Value()
	for end := time.Now().Add(time.Minute); sent.Value() == last; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing says that the last answer has come")
		}
	}
}

// TestStreamsDoNotTakeTurns: much in one direction is acknowledged as it comes.
func TestStreamsDoNotTakeTurns(t *testing.T) {
	_, c := turns(t)
	sent := bytes.Repeat([]byte("0123456789abcde\n"), 1<<20)
	go c.Write(sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back changed, %v", len(got), err)
	}
}

// TestTurnsEnd: whichever side ends a connection that takes turns, and however, the link
// goes on.
func TestTurnsEnd(t *testing.T) {
	ns := inside(t)
	port := serve(t, ns, func(c net.Conn) {
		var b [1]byte
		io.ReadFull(c, b[:])
		if b[0] == 'r' {
			c.(*net.TCPConn).SetLinger(0) // its end is a reset
		}
	})
	l := open(t, ns)
	defer l.Close()
	for range 20 {
		for _, how := range []string{"r", "f", ""} {
			c := dial(t, l, port)
			c.(interface{ TakeTurns() }).TakeTurns()
			if how != "" {
				if _, err := io.WriteString(c, how); err != nil {
					t.Fatal(err)
				}
				c.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatalf("%q: %v", how, err)
				}
			}
			c.Close()
		}
	}
}
