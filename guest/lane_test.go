package guest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// laneServer serves h on connections that become lanes.
func laneServer(t *testing.T, h http.HandlerFunc) (dial func() *dialled, end context.CancelFunc) {
	ctx, end := context.WithCancel(t.Context())
	s := httptest.NewServer(lanes(ctx, h))
	t.Cleanup(s.Close)
	t.Cleanup(end)
	return func() *dialled {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		c.SetDeadline(time.Now().Add(time.Minute))
		return &dialled{t, c, bufio.NewReader(c)}
	}, end
}

type dialled struct {
	t *testing.T
	net.Conn
	in *bufio.Reader
}

// ask sends a request as it stands.
func (d *dialled) ask(request string) {
	d.t.Helper()
	if _, err := io.WriteString(d, request); err != nil {
		d.t.Error(err)
	}
}

// heard is the next answer: its length as the header has it, and its body.
func (d *dialled) heard() (resp *http.Response, body string) {
	d.t.Helper()
	resp, err := http.ReadResponse(d.in, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Errorf("after %.40q: %v", b, err)
	}
	return resp, string(b)
}

func (d *dialled) over() {
	d.t.Helper()
	if b, err := io.ReadAll(d.in); err != nil && !strings.Contains(err.Error(), "reset") || len(b) > 0 {
		d.t.Errorf("it goes on with %q, %v", b, err)
	}
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: guest\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func TestLane(t *testing.T) {
	dial, _ := laneServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-From", r.RemoteAddr)
		w.Header().Set("Content-Length", "77")
		switch r.URL.Path {
		case "/fails":
			w.WriteHeader(http.StatusTeapot)
			w.WriteHeader(http.StatusOK) // too late
		case "/parts":
			io.WriteString(w, "first ")
			w.(http.Flusher).Flush()
			w.(http.Flusher).Flush()
		case "/slow":
			time.Sleep(3 * gatherTime)
		case "/last":
			w.Header().Set("Connection", "close")
		}
		w.Write(body)
	})
	d := dial()
	long := strings.Repeat("x", maxHeld)
	for _, c := range []struct {
		path, body, want string
		status           int
		length           int64
	}{
		{"/", "hello", "hello", 200, 5},
		{"/", "", "", 200, 0},
		{"/parts", "rest", "first rest", 200, -1},
		{"/fails", "why", "why", 418, 3},
		{"/slow", "late", "late", 200, 4},
		{"/", long, long, 200, maxHeld},
		{"/parts", long, "first " + long, 200, -1},
		{"/", "again", "again", 200, 5},
	} {
		d.ask(post(c.path, c.body))
		resp, body := d.heard()
		if resp.StatusCode != c.status || body != c.want || resp.ContentLength != c.length || resp.Header.Get("X-From") != d.LocalAddr().String() {
			t.Errorf("%s: %d %.40q of %d, from %s", c.path, resp.StatusCode, body, resp.ContentLength, resp.Header.Get("X-From"))
		}
	}
	// Two at once, the second while the first is served.
	d.ask(post("/slow", "one") + post("/", "two"))
	if _, one := d.heard(); one != "one" {
		t.Errorf("the first of two: %q", one)
	}
	if _, two := d.heard(); two != "two" {
		t.Errorf("the second of two: %q", two)
	}
	// Byte by byte.
	for _, b := range []byte(post("/", "slowly")) {
		d.ask(string(b))
	}
	if _, body := d.heard(); body != "slowly" {
		t.Errorf("byte by byte: %q", body)
	}
	// What is larger, or of no known length, is the last.
	d.ask("POST / HTTP/1.1\r\nHost: guest\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
	if resp, body := d.heard(); body != "abc" || !resp.Close {
		t.Errorf("chunks: %q, closed: %v", body, resp.Close)
	}
	d.over()

	for _, request := range []string{post("/last", "x"), strings.Replace(post("/", "x"), "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1)} {
		d := dial()
		d.ask(request)
		if _, body := d.heard(); body != "x" {
			t.Errorf("the last: %q", body)
		}
		d.over()
	}
}

// TestLaneEnds with a client that is none, and with the guest.
func TestLaneEnds(t *testing.T) {
	dial, end := laneServer(t, func(w http.ResponseWriter, r *http.Request) {})
	for _, request := range []string{"noise\r\n\r\n", "POST / HTTP/1.1\r\nHost: guest\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n"} {
		d := dial()
		d.ask(post("/", ""))
		d.heard()
		_, _ = io.WriteString(d, request) // it may be refused half way
		d.over()
	}
	d := dial()
	d.ask(post("/", ""))
	d.heard()
	end()
	d.over()
}

// TestLaneHearsThatItsClientIsGone while a call waits.
func TestLaneHearsThatItsClientIsGone(t *testing.T) {
	ended := make(chan error, 1)
	dial, _ := laneServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wait" {
			select {
			case <-r.Context().Done():
				ended <- r.Context().Err()
			case <-time.After(time.Minute):
				ended <- nil
			}
		}
	})
	d := dial()
	d.ask(post("/", ""))
	d.heard()
	d.ask(post("/wait", ""))
	time.Sleep(2 * gatherTime)
	d.Close()
	if err := <-ended; err == nil {
		t.Error("the call went on")
	}
}

// TestLaneOfALargeAnswer sends it before it is whole.
func TestLaneOfALargeAnswer(t *testing.T) {
	dial, _ := laneServer(t, func(w http.ResponseWriter, r *http.Request) {
		for range 100 {
			io.WriteString(w, strings.Repeat("y", 10<<10))
		}
	})
	d := dial()
	for range 2 {
		d.ask(post("/", ""))
		if resp, body := d.heard(); len(body) != 1000<<10 || resp.ContentLength != -1 {
			t.Errorf("%d bytes of %d", len(body), resp.ContentLength)
		}
	}
}
