package guestclient

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// toldConn is a connection that is told whether it is quiet.
type toldConn struct {
	net.Conn
	loud   *atomic.Bool
	closed atomic.Bool
}

func (c *toldConn) Quiet() bool { return !c.loud.Load() }
func (c *toldConn) Close() error {
	c.closed.Store(true)
	return c.Conn.Close()
}

// peer is the other end of each connection that an inline opens.
type peer struct {
	*inline
	t     *testing.T
	loud  atomic.Bool
	conns []*toldConn
	all   sync.WaitGroup
}

// newPeer answers each request with what say gives for its path.
func newPeer(t *testing.T, say func(path string) string) *peer {
	p := &peer{t: t}
	p.inline = &inline{dial: func(context.Context) (net.Conn, error) {
		ours, theirs := net.Pipe()
		p.all.Go(func() {
			defer theirs.Close()
			in := bufio.NewReader(theirs)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				io.Copy(io.Discard, r.Body)
				if _, err := io.WriteString(theirs, say(r.URL.Path)); err != nil {
					return
				}
			}
		})
		c := &toldConn{Conn: ours, loud: &p.loud}
		p.conns = append(p.conns, c)
		return c, nil
	}}
	t.Cleanup(func() {
		p.CloseIdleConnections()
		for n, c := range p.conns {
			if !c.closed.Load() {
				t.Errorf("connection %d is open", n)
			}
		}
		p.all.Wait()
	})
	return p
}

func (p *peer) ask(ctx context.Context, path string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", "http://guest"+path, strings.NewReader("question"))
	if err != nil {
		p.t.Fatal(err)
	}
	return p.RoundTrip(r)
}

// heard asks and reads the answer to its end.
func (p *peer) heard(path string) string {
	p.t.Helper()
	resp, err := p.ask(p.t.Context(), path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Errorf("%s: %v", path, err)
	}
	return string(b) + resp.Trailer.Get("End")
}

func answers(path string) string {
	switch path {
	case "/parts":
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: End\r\n\r\n4\r\npart\r\n1\r\ns\r\n0\r\nEnd: .\r\n\r\n"
	case "/last":
		return "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nlast"
	case "/more": // than was asked for
		return "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmoreHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	case "/header":
		return "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n"
	case "/large":
		return "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 200000)
	case "/half":
		return "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nhalf"
	case "/noise":
		return "noise\r\n\r\n"
	}
	return "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	p := newPeer(t, answers)
	for _, c := range []struct {
		path, want string
		conns      int // that there have been then
	}{
		{"/", "ok", 1}, {"/parts", "parts.", 1}, {"/", "ok", 1},
		{"/last", "last", 1}, {"/", "ok", 2}, // what the guest closes is used no more
		{"/more", "more", 2}, {"/", "ok", 3}, // nor what has said more than it was asked
		{"/large", strings.Repeat("x", 200000), 3}, {"/", "ok", 3},
	} {
		if got := p.heard(c.path); got != c.want || len(p.conns) != c.conns {
			t.Errorf("%s: %.20q on connection %d, want %.20q on %d", c.path, got, len(p.conns), c.want, c.conns)
		}
	}
	p.loud.Store(true) // it ended, or something came, while nobody used it
	if got := p.heard("/"); got != "ok" || len(p.conns) != 4 || !p.conns[2].closed.Load() {
		t.Errorf("%q on connection %d", got, len(p.conns))
	}
}

func TestWhatIsNotReadIsNotUsedAgain(t *testing.T) {
	p := newPeer(t, answers)
	resp, err := p.ask(t.Context(), "/large")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(resp.Body, make([]byte, 10)); err != nil {
		t.Error(err)
	}
	resp.Body.Close()
	if !p.conns[0].closed.Load() {
		t.Error("its connection is kept")
	}
	if got := p.heard("/"); got != "ok" || len(p.conns) != 2 {
		t.Errorf("%q on connection %d", got, len(p.conns))
	}
}

// TestAnswersThatAreNone come from a guest that means harm.
func TestAnswersThatAreNone(t *testing.T) {
	p := newPeer(t, answers)
	for n, path := range []string{"/header", "/noise"} {
		if resp, err := p.ask(t.Context(), path); err == nil {
			t.Errorf("%s: %s", path, resp.Status)
		}
		if !p.conns[n].closed.Load() {
			t.Errorf("%s: its connection is kept", path)
		}
	}
}

// TestACallEndsWithItsContext wherever it waits.
func TestACallEndsWithItsContext(t *testing.T) {
	why := errors.New("the reason")
	hold := make(chan struct{})
	p := newPeer(t, func(path string) string {
		if path == "/never" {
			<-hold
		}
		return answers(path)
	})
	defer close(hold)
	for _, path := range []string{"/half", "/never"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		bell := time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
		resp, err := p.ask(ctx, path)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if !errors.Is(err, why) {
			t.Errorf("%s: it ended with %v", path, err)
		}
		bell.Stop()
	}
	// One that ends later takes nothing from who uses the connection next.
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := p.ask(ctx, "/")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Error(err)
	}
	before := len(p.conns)
	cancel()
	if got := p.heard("/"); got != "ok" || len(p.conns) != before {
		t.Errorf("%q on connection %d, not %d", got, len(p.conns), before)
	}
	resp.Body.Close()
	if got := p.heard("/"); got != "ok" || len(p.conns) != before {
		t.Errorf("a late Close ended another call's connection")
	}
}

// TestIdleConnectionsAreBounded and closed when nobody uses them.
func TestIdleConnectionsAreBounded(t *testing.T) {
	p := newPeer(t, answers)
	var open []*http.Response
	for range briefCalls + 3 {
		resp, err := p.ask(t.Context(), "/")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, resp)
	}
	for _, resp := range open {
		if _, err := io.ReadAll(resp.Body); err != nil {
			t.Error(err)
		}
	}
	if len(p.idle) != briefCalls {
		t.Errorf("%d are kept", len(p.idle))
	}
	for _, c := range p.conns {
		for _, l := range p.idle {
			if l.conn == net.Conn(c) {
				l.tire()
				break
			}
		}
	}
	if len(p.idle) != 0 {
		t.Errorf("%d are kept that nobody uses", len(p.idle))
	}
}

// TestASocketThatEnded while nobody used it is not used again.
func TestASocketThatEnded(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	gone := make(chan struct{}, 2)
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			gone <- struct{}{}
		}
	}
	s.Start()
	defer s.Close()
	dials := 0
	i := &inline{dial: func(ctx context.Context) (net.Conn, error) {
		dials++
		return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}}
	defer i.CloseIdleConnections()
	for n, want := range []int{1, 1, 2} {
		if n == 2 {
			s.CloseClientConnections()
			<-gone
		}
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := i.RoundTrip(r)
		if err != nil {
			t.Fatalf("call %d: %v", n, err)
		}
		if _, err := io.ReadAll(resp.Body); err != nil || dials != want {
			t.Errorf("call %d went over connection %d, not %d: %v", n, dials, want, err)
		}
		resp.Body.Close()
	}
}
