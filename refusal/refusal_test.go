package refusal_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/berth-dev/berth/refusal"
)

// full reads a part of a body and has no room for more.
func full(w http.ResponseWriter, r *http.Request) {
	if _, err := io.CopyN(io.Discard, r.Body, 1<<20); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body.Close()
	http.Error(w, "no room", http.StatusInsufficientStorage)
}

// endless is a body without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestARefusalIsHeard sends bodies without an end: each hears why it is refused.
func TestARefusalIsHeard(t *testing.T) {
	s := httptest.NewServer(refusal.Heard(http.HandlerFunc(full)))
	defer s.Close()
	client := &http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}
	for i := range 100 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.URL, endless{})
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Expect", "100-continue")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		said, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != http.StatusInsufficientStorage || err != nil || string(said) != "no room\n" {
			t.Fatalf("request %d: %s, %q, %v", i, resp.Status, said, err)
		}
	}
}

// TestWhatIsNotSentIsNotWaitedFor refuses before the client was told to begin, and takes
// a whole body on a connection that goes on.
func TestWhatIsNotSentIsNotWaitedFor(t *testing.T) {
	s := httptest.NewServer(refusal.Heard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			http.Error(w, "not here", http.StatusForbidden)
			return
		}
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintln(w, n, err)
	})))
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	in := textproto.NewConn(conn)
	for range 2 {
		fmt.Fprint(conn, "PUT /yes HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n")
		if line, err := in.ReadLine(); err != nil || line != "HTTP/1.1 100 Continue" {
			t.Fatalf("%q, %v", line, err)
		}
		in.ReadLine()
		fmt.Fprint(conn, "abc")
		resp, err := http.ReadResponse(in.R, nil)
		if err != nil {
			t.Fatal(err)
		}
		if said, err := io.ReadAll(resp.Body); err != nil || string(said) != "3 <nil>\n" {
			t.Fatalf("%q, %v", said, err)
		}
	}
	fmt.Fprint(conn, "PUT /no HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3000000\r\n\r\n")
	rest, err := io.ReadAll(in.R) // to the end, which nothing delays
	if err != nil || !strings.HasPrefix(string(rest), "HTTP/1.1 403") || !bytes.HasSuffix(rest, []byte("not here\n")) {
		t.Fatalf("%q, %v", rest, err)
	}
}

// TestAStreamIsNotHeldBack answers piece by piece while the body comes.
func TestAStreamIsNotHeldBack(t *testing.T) {
	s := httptest.NewServer(refusal.Heard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		if err := c.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		w.WriteHeader(http.StatusAccepted)
		for b := make([]byte, 1); ; {
			if _, err := io.ReadFull(r.Body, b); err != nil {
				return
			}
			w.Write(b)
			if err := c.Flush(); err != nil {
				t.Error(err)
			}
		}
	})))
	defer s.Close()
	body, send := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Expect", "100-continue")
	go send.Write([]byte("a"))
	resp, err := (&http.Client{Transport: &http.Transport{ExpectContinueTimeout: time.Minute}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, sent := range []string{"", "b", "c"} {
		if sent != "" {
			send.Write([]byte(sent))
		}
		got := make([]byte, 1)
		if _, err := io.ReadFull(resp.Body, got); err != nil || sent != "" && string(got) != sent {
			t.Fatalf("after %q: %q, %v", sent, got, err)
		}
	}
	send.Close()
	if rest, err := io.ReadAll(resp.Body); err != nil || len(rest) != 0 || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("%s, %q, %v", resp.Status, rest, err)
	}
}
