package guest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// pair is the two ends of a connection, of which the first is quiet.
func pair(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	there, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	here, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close(); there.Close() })
	if here = quiet(here); here == nil {
		t.Fatal("no connection")
	} else if _, ok := here.(*quietConn); !ok {
		t.Fatalf("%T", here)
	}
	return here, there
}

func TestQuietConnCarriesAll(t *testing.T) {
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<19) // more than any buffer holds
	carry := func(from, to net.Conn) {
		t.Helper()
		go func() {
			from.Write(sent)
			from.Close()
		}()
		if got, err := io.ReadAll(to); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%d bytes of %d, %v", len(got), len(sent), err)
		}
	}
	here, there := pair(t)
	carry(here, there)
	here, there = pair(t)
	carry(there, here)
}

func TestQuietConnEnds(t *testing.T) {
	here, there := pair(t)
	if n, err := here.Read(nil); n != 0 || err != nil {
		t.Errorf("no room: %d %v", n, err)
	}
	here.SetReadDeadline(time.Now())
	_, err := here.Read(make([]byte, 1))
	if ne, ok := errors.AsType[net.Error](err); !ok || !ne.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past its time: %v", err)
	}
	here.SetReadDeadline(time.Time{})

	there.Close()
	if _, err := here.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("closed there: %v", err)
	}
	for range 1000 { // until the other side has said that nobody is there
		if _, err = here.Write([]byte("x")); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if _, ok := errors.AsType[*net.OpError](err); !ok {
		t.Errorf("write to nobody: %v", err)
	}

	here, _ = pair(t)
	done := make(chan error)
	go func() {
		_, err := here.Read(make([]byte, 1))
		done <- err
	}()
	here.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed here: %v", err)
	}
	if _, err := here.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write to a closed one: %v", err)
	}
}

func TestWhatHasNoDescriptorStaysAsItIs(t *testing.T) {
	c, other := net.Pipe()
	defer c.Close()
	defer other.Close()
	if quiet(c) != c {
		t.Error("another")
	}
}
