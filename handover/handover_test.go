package handover

import (
	"errors"
	"net"
	"testing"
)

// TestHandover: a connection is one side's or the other's, also when the listener is
// closed meanwhile.
func TestHandover(t *testing.T) {
	l := New("inside")
	if got := l.Addr().String(); got != "inside" {
		t.Errorf("the address is %q", got)
	}
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	pushed := make(chan bool)
	go func() { pushed <- l.Push(a) }()
	c, err := l.Accept()
	if err != nil || c != a || !<-pushed {
		t.Fatalf("accepted %v, %v", c, err)
	}
	go func() { pushed <- l.Push(b) }() // nobody takes it
	for range 2 {
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if <-pushed {
		t.Error("a closed listener has taken a connection")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept when it is closed: %v", err)
	}
}
