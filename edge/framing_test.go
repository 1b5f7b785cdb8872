package edge_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berth-dev/berth/edge"
)

// listened is a server inside that notes what each connection to it brings.
type listened struct {
	mu    sync.Mutex
	conns []*bytes.Buffer
}

// all is what each connection has brought by now.
func (l *listened) all() (texts []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		texts = append(texts, c.String())
	}
	return texts
}

// heard notes what one connection brings.
type heard struct {
	*listened
	text *bytes.Buffer
}

func (h heard) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

func (l *listened) serve(c net.Conn) {
	h := heard{l, new(bytes.Buffer)}
	l.mu.Lock()
	l.conns = append(l.conns, h.text)
	l.mu.Unlock()
	in := bufio.NewReader(io.TeeReader(c, h))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		io.Copy(io.Discard, r.Body)
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"); err != nil {
			return
		}
	}
}

var headerLine = regexp.MustCompile(`^[A-Za-z0-9-]+: [^\x00-\x08\x0a-\x1f\x7f]*$`)

// framed says what is wrong with the requests of a connection: any two servers must see
// each end at the same byte, and all are for host. The last one may break off.
func framed(all, host string) error {
	text := strings.NewReader(all)
	for in := bufio.NewReader(text); ; {
		begin := all[len(all)-text.Len()-in.Buffered():]
		r, err := http.ReadRequest(in)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w: %q", err, begin)
		}
		if r.Host != host {
			return fmt.Errorf("a request for %q", r.Host)
		}
		if err := oneLength(begin); err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return fmt.Errorf("a body: %w: %q", err, begin)
		}
	}
}

// oneLength says what is ambiguous in the header that a text begins with.
func oneLength(text string) error {
	head, _, _ := strings.Cut(text, "\r\n\r\n")
	frames := 0
	for _, line := range strings.Split(head, "\r\n")[1:] {
		if !headerLine.MatchString(line) {
			return fmt.Errorf("the line %q", line)
		}
		switch name, value, _ := strings.Cut(strings.ToLower(line), ": "); {
		case name == "transfer-encoding" && value != "chunked":
			return fmt.Errorf("the line %q", line)
		case name == "transfer-encoding", name == "content-length":
			frames++
		}
	}
	if frames > 1 {
		return fmt.Errorf("two lengths in %q", head)
	}
	return nil
}

// TestAmbiguousRequests: what two servers could take for different requests is refused,
// or is passed on as one that they cannot. Nothing reaches a port by the way of another.
func TestAmbiguousRequests(t *testing.T) {
	h := open(t, edge.Config{})
	var open, closed listened
	public, private := bare(t, open.serve), bare(t, closed.serve)
	id, other := h.create(), h.create()
	h.publish(id, public)
	here, there := edge.Host(id, public, domain), edge.Host(other, private, domain)
	inner := "GET /inner HTTP/1.1\r\nHost: " + there + "\r\n\r\n"
	post := "POST / HTTP/1.1\r\nHost: " + here + "\r\n"
	if status := h.raw(post + "Content-Length: 5\r\n\r\nhello"); status != 200 || len(open.all()) != 1 || !strings.HasSuffix(open.all()[0], "\r\n\r\nhello") {
		t.Fatalf("a plain one: %d, %q", status, open.all())
	}
	for what, request := range map[string]string{
		"length and chunks":         post + fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 5+len(inner)) + inner,
		"chunks and length":         post + "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(inner), inner),
		"two lengths":               post + fmt.Sprintf("Content-Length: 0\r\nContent-Length: %d\r\n\r\n", len(inner)) + inner,
		"a list of lengths":         post + fmt.Sprintf("Content-Length: 0, %d\r\n\r\n", len(inner)) + inner,
		"a length with a sign":      post + fmt.Sprintf("Content-Length: +%d\r\n\r\n", len(inner)) + inner,
		"a length below zero":       post + "Content-Length: -1\r\n\r\n" + inner,
		"an endless length":         post + "Content-Length: 99999999999999999999\r\n\r\n" + inner,
		"space before the colon":    post + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n" + inner,
		"space before the name":     post + " Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"a folded line":             post + "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n" + inner,
		"an unknown coding":         post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n" + inner,
		"two codings":               post + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n" + inner,
		"a coding twice":            post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner,
		"a coding after a tab":      post + "Transfer-Encoding: \vchunked\r\n\r\n0\r\n\r\n" + inner,
		"a chunk's extension":       post + "Transfer-Encoding: chunked\r\n\r\n1;\n\r\nx\r\n0\r\n\r\n" + inner,
		"a chunk's sign":            post + "Transfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n0\r\n\r\n" + inner,
		"a chunk's trailer":         post + "Transfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\nContent-Length: 100\r\n\r\n" + inner,
		"a lone carriage return":    post + "X: a\rContent-Length: 5\r\n\r\n" + inner,
		"a lone line feed":          post + "X: a\nTransfer-Encoding: chunked\n\n0\r\n\r\n" + inner,
		"a zero byte":               post + "X: a\x00b\r\n\r\n",
		"two hosts":                 "GET /inner HTTP/1.1\r\nHost: " + here + "\r\nHost: " + there + "\r\n\r\n",
		"a host in the target":      "GET http://" + there + "/inner HTTP/1.1\r\nHost: " + here + "\r\n\r\n",
		"a user in the host":        "GET /inner HTTP/1.1\r\nHost: " + here + "@" + there + "\r\n\r\n",
		"a path in the host":        "GET /inner HTTP/1.1\r\nHost: " + there + "/." + here + "\r\n\r\n",
		"a tunnel":                  "CONNECT " + there + ":80 HTTP/1.1\r\nHost: " + here + "\r\n\r\n" + inner,
		"a length that is dropped":  post + fmt.Sprintf("Connection: close, content-length\r\nContent-Length: %d\r\n\r\n", len(inner)) + inner,
		"another protocol":          "GET / HTTP/1.1\r\nHost: " + here + "\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n" + inner,
		"a protocol of before":      "GET / HTTP/0.9\r\nHost: " + here + "\r\n\r\n" + inner,
		"a target of another shape": "GET //" + there + "/inner HTTP/1.1\r\nHost: " + here + "\r\n\r\n",
	} {
		h.raw(request)
		if got := closed.all(); len(got) > 0 {
			t.Fatalf("%s: a port that is closed got %q", what, got)
		}
	}
	for _, text := range open.all() {
		if err := framed(text, here); err != nil {
			t.Errorf("the server inside got %v", err)
		}
	}
}

// raw sends bytes and returns the status of the first answer, 0 if there is none. What
// was sent behind it has been looked at too when it returns.
func (h *house) raw(request string) int {
	h.t.Helper()
	c, err := net.Dial("tcp", h.http.Listener.Addr().String())
	if err != nil {
		h.t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		h.t.Fatal(err)
	}
	if _, err := io.WriteString(c, request); err != nil {
		h.t.Fatal(err)
	}
	in := bufio.NewReader(c)
	first, err := http.ReadResponse(in, nil)
	if err != nil {
		return 0
	}
	if _, err := io.Copy(io.Discard, first.Body); err != nil {
		return first.StatusCode
	}
	c.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, in) // to the end, or a reset: either will do
	return first.StatusCode
}
