package intercept

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/berth-dev/berth/sandbox"
)

// TestEventsComeAtOnce reads an event before the next one is made.
func TestEventsComeAtOnce(t *testing.T) {
	for _, masked := range []bool{false, true} {
		for _, http2 := range []bool{false, true} {
			t.Run(fmt.Sprint("masked=", masked, " http2=", http2), func(t *testing.T) {
				next := make(chan struct{})
				r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for i := range 5 {
						fmt.Fprintf(w, "data: %d ghp\n\n", i) // its end may begin the secret
						w.(http.Flusher).Flush()
						select {
						case <-next:
						case <-q.Context().Done():
							return
						}
					}
				}), bearer(func(i *sandbox.Inject) { i.Mask = masked }))
				resp, err := r.client(http2).Do(newRequest(t, "GET", "https://"+host+"/", nil))
				must(t, err)
				defer resp.Body.Close()
				lines := bufio.NewReader(resp.Body)
				for i := range 5 {
					line, err := lines.ReadString('\n')
					if err != nil || line != fmt.Sprintf("data: %d ghp\n", i) {
						t.Fatalf("%q, %v", line, err)
					}
					lines.ReadString('\n')
					next <- struct{}{}
				}
			})
		}
	}
}

func TestWebSocketsPass(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		auth := q.Header.Get("Authorization")
		c, err := websocket.Accept(w, q, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer c.CloseNow()
		for {
			kind, b, err := c.Read(q.Context())
			if err != nil {
				return
			}
			if err := c.Write(q.Context(), kind, []byte(auth+" "+string(b))); err != nil {
				return
			}
		}
	}), bearer(func(i *sandbox.Inject) { i.Mask = true }))
	c, _, err := websocket.Dial(t.Context(), "wss://"+host+"/socket", &websocket.DialOptions{HTTPClient: r.client(false), CompressionMode: websocket.CompressionContextTakeover})
	must(t, err)
	defer c.CloseNow()
	for _, s := range []string{"one", "two"} {
		must(t, c.Write(t.Context(), websocket.MessageText, []byte(s)))
		_, b, err := c.Read(t.Context())
		if want := "Bearer " + strings.Repeat("*", len(token)) + " " + s; err != nil || string(b) != want {
			t.Errorf("%q, %v, want %q", b, err, want)
		}
	}
	c.Close(websocket.StatusNormalClosure, "")
	if e := r.last(1); e.Status != 101 || e.Credential != "k" {
		t.Errorf("%+v", e)
	}
}

func TestTrailersPass(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		io.Copy(io.Discard, q.Body)
		w.Header().Set("Trailer", "Grpc-Status")
		w.Header().Set("X-Te", q.Header.Get("Te"))
		io.WriteString(w, q.Trailer.Get("X-End"))
		w.(http.Flusher).Flush()
		w.Header().Set("Grpc-Status", "0 "+token)
		w.Header().Set(http.TrailerPrefix+"X-Late", "late")
	}), bearer(func(i *sandbox.Inject) { i.Mask = true }))
	req := newRequest(t, "POST", "https://"+host+"/service/Method", io.MultiReader(strings.NewReader("body")))
	req.Header.Set("Te", "trailers")
	req.Trailer = http.Header{"X-End": {"sent at the end"}}
	resp, body := r.request(r.client(true), req)
	if body != "sent at the end" || resp.Header.Get("X-Te") != "trailers" {
		t.Errorf("%q %v", body, resp.Header)
	}
	if got := resp.Trailer.Get("Grpc-Status"); got != "0 "+strings.Repeat("*", len(token)) || resp.Trailer.Get("X-Late") != "late" {
		t.Errorf("%v", resp.Trailer)
	}
}

// TestBothWaysAtOnce answers each part of a body before the next is sent.
func TestBothWaysAtOnce(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.(http.Flusher).Flush()
		lines := bufio.NewReader(q.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(w, "got "+line)
			w.(http.Flusher).Flush()
		}
	}), bearer())
	in, out := io.Pipe()
	resp, err := r.client(true).Do(newRequest(t, "POST", "https://"+host+"/", in))
	must(t, err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 5 {
		go fmt.Fprintf(out, "%d\n", i)
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintf("got %d\n", i) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	out.Close()
}

func TestAClientThatAsksFirst(t *testing.T) {
	r := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/no" {
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		echo(w, q)
	}), bearer())
	for path, want := range map[string]int{"/yes": 200, "/no": 417} {
		var asked atomic.Bool
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { asked.Store(true) }})
		req, err := http.NewRequestWithContext(ctx, "POST", "https://"+host+path, strings.NewReader("body"))
		must(t, err)
		req.Header.Set("Expect", "100-continue")
		resp, body := r.request(r.client(false), req)
		if resp.StatusCode != want || asked.Load() != (want == 200) || (want == 200 && body != "body") {
			t.Errorf("%s: %s %q, told to go on: %v", path, resp.Status, body, asked.Load())
		}
	}
}

// TestManyAtOnce has one connection carry many requests, and many connections
// one each, of which none sees another's answer.
func TestManyAtOnce(t *testing.T) {
	r := newRig(t, http.HandlerFunc(echo), bearer())
	shared := r.client(true)
	done := make(chan error, 200)
	for i := range cap(done) {
		go func() {
			c := shared
			if i%10 == 0 {
				c = r.client(false)
			}
			text := fmt.Sprint("request ", i)
			req, err := http.NewRequestWithContext(t.Context(), "POST", "https://"+host+"/", strings.NewReader(text))
			if err != nil {
				done <- err
				return
			}
			resp, err := c.Do(req)
			if err == nil {
				var b []byte
				b, err = io.ReadAll(resp.Body)
				resp.Body.Close()
				if err == nil && string(b) != text {
					err = fmt.Errorf("%q came back as %q", text, b)
				}
			}
			done <- err
		}()
	}
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestAnUnreachableServer is told to the client, and to the audit.
func TestAnUnreachableServer(t *testing.T) {
	r := newRig(t, http.HandlerFunc(echo), bearer())
	r.set(func() {
		r.flow = func(f *Flow) {
			f.Dial = func(context.Context) (net.Conn, error) { return nil, fmt.Errorf("dial: connection refused") }
		}
	})
	resp, body := r.get("/")
	if resp.StatusCode != http.StatusBadGateway || !strings.Contains(body, "refused") {
		t.Errorf("%s %s", resp.Status, body)
	}
	if e := r.last(1); e.Verdict != sandbox.VerdictFailed {
		t.Errorf("%+v", e)
	}
}

// TestAHeaderWithoutEnd sends a gigabyte of one: its client is cut, and next to
// nothing of it is taken.
func TestAHeaderWithoutEnd(t *testing.T) {
	const size = 1 << 30
	r := newRig(t, http.HandlerFunc(echo), bearer())
	c, err := tls.Dial("tcp", r.door.Addr().String(), r.tlsConfig(host, "http/1.1"))
	must(t, err)
	defer c.Close()
	must(t, c.SetDeadline(time.Now().Add(time.Minute)))
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: "+host+"\r\nX-Long: ")
	sent, piece := 0, strings.Repeat("x", 64<<10)
	for err = nil; sent < size && err == nil; {
		var n int
		n, err = io.WriteString(c, piece)
		sent += n
	}
	if late := net.Error(nil); errors.As(err, &late) && late.Timeout() || sent > size/8 {
		t.Errorf("%d bytes of a request's header were taken, %v", sent, err)
	}
	if r.dials() != 0 {
		t.Error("a request without an end was passed on")
	}
}

// BenchmarkRequest compares a request through the gateway with one to the server.
func BenchmarkRequest(b *testing.B) {
	for _, through := range []bool{false, true} {
		b.Run(map[bool]string{false: "direct", true: "injected"}[through], func(b *testing.B) {
			r := newRig(b, http.HandlerFunc(echo), bearer())
			c := r.client(false)
			if !through {
				c = r.server.Client()
				c.Transport.(*http.Transport).TLSClientConfig.RootCAs = r.p.roots
				c.Transport.(*http.Transport).TLSClientConfig.ServerName = host
			}
			url := "https://" + host + "/"
			if !through {
				url = r.server.URL
			}
			for b.Loop() {
				resp, err := c.Get(url)
				must(b, err)
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
}
