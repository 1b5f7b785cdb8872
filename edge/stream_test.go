package edge_test

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/edge"
	"github.com/berth-dev/berth/sandbox"
)

// TestWebSocket: messages pass both ways, and the edge's end ends them.
func TestWebSocket(t *testing.T) {
	h := open(t, edge.Config{})
	ended := make(chan error, 1)
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil) // checks that Origin and Host are one
		if err != nil {
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(context.Background())
			if err != nil {
				ended <- err
				return
			}
			if c.Write(context.Background(), kind, append([]byte("echo "), b...)) != nil {
				return
			}
		}
	})
	id := h.create()
	token := h.share(id, port, sandbox.ShareRequest{}).Token
	address := "ws://" + edge.Host(id, port, domain) + "/?berth_token=" + token
	header := http.Header{"Origin": {"http://" + edge.Host(id, port, domain)}}
	c, _, err := websocket.Dial(t.Context(), address, &websocket.DialOptions{HTTPClient: h.client(), HTTPHeader: header})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseNow()
	for i := range 100 {
		text := fmt.Sprint("message ", i)
		if err := c.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if _, b, err := c.Read(t.Context()); err != nil || string(b) != "echo "+text {
			t.Fatalf("%q %v", b, err)
		}
	}
	h.edge.Close()
	if _, _, err := c.Read(t.Context()); err == nil {
		t.Error("it goes on although the edge is closed")
	}
	<-ended
	if _, _, err := websocket.Dial(t.Context(), strings.Split(address, "?")[0], &websocket.DialOptions{HTTPClient: h.client()}); err == nil {
		t.Error("a stranger gets a WebSocket")
	}
}

// TestEvents: each event of a stream arrives when it is sent.
func TestEvents(t *testing.T) {
	h := open(t, edge.Config{})
	next := make(chan string)
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case text := <-next:
				fmt.Fprintf(w, "data: %s\n\n", text)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	id := h.create()
	h.publish(id, port)
	r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+edge.Host(id, port, domain)+"/", nil)
	go func() { next <- "first" }()
	resp, err := h.client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	in := bufio.NewReader(resp.Body)
	for _, text := range []string{"first", "second", "third"} {
		if text != "first" {
			next <- text
		}
		if line, err := in.ReadString('\n'); err != nil || line != "data: "+text+"\n" {
			t.Fatalf("%q %v", line, err)
		}
		in.ReadString('\n')
	}
	h.edge.Close()
	if _, err := in.ReadByte(); err == nil {
		t.Error("it goes on although the edge is closed")
	}
}

// TestLargeBodies: bodies pass both ways at once, and are not held.
func TestLargeBodies(t *testing.T) {
	h := open(t, edge.Config{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		if _, err := io.Copy(w, r.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
	})
	id := h.create()
	h.publish(id, port)
	const size = 100 << 20
	sent := sha256.New()
	body := io.TeeReader(io.LimitReader(newNoise(), size), sent)
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+edge.Host(id, port, domain)+"/", body)
	resp, err := h.client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var most, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&most)
	got := sha256.New()
	n := int64(0)
	for {
		part, err := io.CopyN(got, resp.Body, 8<<20)
		n += part
		if runtime.ReadMemStats(&now); now.HeapAlloc > most.HeapAlloc+32<<20 {
			t.Errorf("after %d bytes the heap has grown from %d to %d", n, most.HeapAlloc, now.HeapAlloc)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n != size || string(got.Sum(nil)) != string(sent.Sum(nil)) {
		t.Errorf("%d bytes came back of %d", n, size)
	}
}

// noise repeats random bytes.
type noise struct{ block [1 << 16]byte }

func newNoise() *noise {
	var n noise
	rand.Read(n.block[:])
	return &n
}

func (n *noise) Read(p []byte) (int, error) { return copy(p, n.block[:]), nil }

// TestGRPC: what is spoken over HTTP/2 without TLS is so to the server inside,
// both ways at once, with its trailers.
func TestGRPC(t *testing.T) {
	h := open(t, edge.Config{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		w.WriteHeader(200)
		w.(http.Flusher).Flush()
		b := make([]byte, 5)
		for {
			if _, err := io.ReadFull(r.Body, b); err != nil {
				break
			}
			w.Write([]byte(strings.ToUpper(string(b))))
			w.(http.Flusher).Flush()
		}
		w.Header().Set("Grpc-Status", r.Proto)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	port := s.Listener.Addr().(*net.TCPAddr).Port
	id := h.create()
	h.publish(id, port)
	c := h.client()
	c.Transport.(*http.Transport).Protocols = new(http.Protocols)
	c.Transport.(*http.Transport).Protocols.SetUnencryptedHTTP2(true)
	in, out := io.Pipe()
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+edge.Host(id, port, domain)+"/pkg.Service/Stream", in)
	r.Header.Set("Content-Type", "application/grpc+proto")
	r.Header.Set("TE", "trailers")
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b := make([]byte, 5)
	for range 10 {
		if _, err := io.WriteString(out, "hello"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(resp.Body, b); err != nil || string(b) != "HELLO" {
			t.Fatalf("%q %v", b, err)
		}
	}
	out.Close()
	if _, err := io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	if got := resp.Trailer.Get("Grpc-Status"); got != "HTTP/2.0" {
		t.Errorf("trailers %v", resp.Trailer)
	}
}

// TestBadServers: whatever is inside, the visitor is told, and the edge goes on.
func TestBadServers(t *testing.T) {
	h := open(t, edge.Config{Idle: 300 * time.Millisecond})
	id := h.create()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := l.Addr().(*net.TCPAddr).Port
	l.Close()
	h.publish(id, nobody)
	resp, body := h.get(id, nobody, "/", "Accept", "text/html")
	h.want("nobody", 502, resp, body)
	if !strings.Contains(body, fmt.Sprintf("port %d", nobody)) || !strings.Contains(body, "berth exec -d "+string(id)) {
		t.Errorf("the page says %s", body)
	}
	for what, answer := range map[string]func(net.Conn){
		"closes at once":   func(net.Conn) {},
		"is no web server": func(c net.Conn) { io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n<script>") },
		"never answers":    func(c net.Conn) { io.Copy(io.Discard, c) },
		"never ends its header": func(c net.Conn) {
			io.WriteString(c, "HTTP/1.1 200 OK\r\n")
			for {
				if _, err := io.WriteString(c, "X: "+strings.Repeat("x", 1000)+"\r\n"); err != nil {
					return
				}
			}
		},
	} {
		port := bare(t, answer)
		h.publish(id, port)
		resp, body := h.get(id, port, "/", "Accept", "text/html")
		h.want("a server that "+what, 502, resp, body)
		if strings.Contains(body, "<script>") {
			t.Errorf("its text is in the page: %s", body)
		}
	}
}

// bare serves connections that are not HTTP.
func bare(t *testing.T, serve func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
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
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// TestConfined: a server inside sets no cookie for other sandboxes, and clears
// none of theirs.
func TestConfined(t *testing.T) {
	h := open(t, edge.Config{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Set-Cookie", "a=1; Path=/; domain=."+domain+"; HttpOnly")
		w.Header().Add("Set-Cookie", "b=2; DOMAIN = "+domain)
		w.Header().Add("Set-Cookie", "berth-pass=evil; Path=/")
		w.Header().Set("Clear-Site-Data", `"cookies"`)
		w.Header().Set("Alt-Svc", `h3=":443"`)
	})
	id := h.create()
	h.publish(id, port)
	resp, _ := h.get(id, port, "/")
	if got := fmt.Sprint(resp.Header["Set-Cookie"]); got != "[a=1; Path=/; HttpOnly b=2]" {
		t.Errorf("cookies %s", got)
	}
	if resp.Header.Get("Clear-Site-Data")+resp.Header.Get("Alt-Svc") != "" {
		t.Errorf("header %v", resp.Header)
	}
}

// TestCrowd: requests that never end use up their own sandbox's share alone.
func TestCrowd(t *testing.T) {
	h := open(t, edge.Config{Requests: 4})
	arrived, leave := make(chan bool, 8), make(chan bool)
	port := inside(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stay" {
			arrived <- true
			<-leave
		}
	})
	id, other := h.create(), h.create()
	h.publish(id, port)
	h.publish(other, port)
	done := make(chan int, 4)
	for range 4 {
		go func() {
			resp, _ := h.get(id, port, "/stay")
			done <- resp.StatusCode
		}()
	}
	for range 4 {
		<-arrived
	}
	resp, body := h.get(id, port, "/")
	h.want("one more", 503, resp, body)
	resp, body = h.get(other, port, "/")
	h.want("another sandbox", 200, resp, body)
	close(leave)
	for range 4 {
		if status := <-done; status != 200 {
			t.Errorf("status %d", status)
		}
	}
	resp, body = h.get(id, port, "/")
	h.want("later", 200, resp, body)
}

// TestWakes: a request wakes a sandbox that sleeps; a stranger's does not.
func TestWakes(t *testing.T) {
	h := open(t, edge.Config{})
	port := inside(t, func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello") })
	id := h.create()
	token := h.share(id, port, sandbox.ShareRequest{}).Token
	if _, err := h.s.Engine.Pause(h.ctx, string(id)); err != nil {
		t.Fatal(err)
	}
	resp, body := h.get(id, port, "/")
	h.want("a stranger", 404, resp, body)
	if s, err := h.s.Engine.Get(h.ctx, string(id)); err != nil || s.State != sandbox.Paused {
		t.Fatalf("after a stranger it is %s, %v", s.State, err)
	}
	for range 2 {
		resp, body = h.get(id, port, "/", sandbox.HeaderToken, token)
		h.want("a visitor", 200, resp, body)
	}
	if s, err := h.s.Engine.Get(h.ctx, string(id)); err != nil || s.State != sandbox.Running {
		t.Errorf("after a visitor it is %s, %v", s.State, err)
	}
}
