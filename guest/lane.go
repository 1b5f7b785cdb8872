package guest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/berth-dev/berth/guestapi"
)

const (
	maxHeader = 64 << 10 // bytes of one request's header
	maxHeld   = 32 << 10 // bytes of a body, or of an answer, that are held in memory
)

// lane is a connection that carries one small call after another, each in the goroutine that
// reads it. The server of the standard library listens on beside every call, in a goroutine
// of its own, for a client that goes away. Most calls are over before that could matter, and
// to begin and to end it wakes a second thread, which takes from the program that the call
// is about.
type lane struct {
	conn net.Conn
	in   *bufio.Reader
	size *guestapi.Bounded // of what in reads
	next http.Handler
}

// lanes serves next. A connection whose first call is small becomes a lane, until ctx ends.
func lanes(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Method != http.MethodPost || !isSmall(r) {
			next.ServeHTTP(w, r)
			return
		}
		conn, buffered, err := http.NewResponseController(w).Hijack()
		if err != nil {
			next.ServeHTTP(w, r)
			return
		}
		defer conn.Close()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		came, err := buffered.Reader.Peek(buffered.Reader.Buffered())
		if err != nil {
			return
		}
		l := &lane{conn: conn, next: next, size: &guestapi.Bounded{R: io.MultiReader(bytes.NewReader(bytes.Clone(came)), conn)}}
		l.in = bufio.NewReader(l.size)
		first := r.WithContext(r.Context())
		first.Body = io.NopCloser(io.LimitReader(l.in, r.ContentLength))
		l.run(first)
	})
}

// isSmall reports whether the length of a request's body is known, and little.
func isSmall(r *http.Request) bool {
	return r.ContentLength >= 0 && r.ContentLength <= maxHeld && r.Header.Get("Expect") == ""
}

// run serves r and those that follow it.
func (l *lane) run(r *http.Request) {
	ctx, address := r.Context(), r.RemoteAddr
	for {
		if !l.serve(r) {
			return
		}
		l.size.Left = maxHeader + l.in.Size()
		next, err := http.ReadRequest(l.in)
		l.size.Left = 0
		if err != nil {
			return // the host has closed it, or is none that speaks HTTP
		}
		next.RemoteAddr = address
		r = next.WithContext(ctx)
	}
}

// serve answers a request. It reports whether another may follow.
func (l *lane) serve(r *http.Request) bool {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	r = r.WithContext(ctx)
	a := &laneAnswer{conn: l.conn, header: http.Header{}}
	stop := func() {}
	if body := r.Body; isSmall(r) {
		held := make([]byte, r.ContentLength)
		if _, err := io.ReadFull(body, held); err != nil {
			return false
		}
		r.Body = io.NopCloser(bytes.NewReader(held))
		stop = l.listen(cancel)
	} else {
		a.last = true // nobody knows how much of the body is left
	}
	l.next.ServeHTTP(a, r)
	err := a.end()
	stop()
	return err == nil && !a.last && !r.Close
}

// listen calls gone if the client closes the connection while it waits for an answer that
// is long in coming. Nothing is read from the connection any more once stop has returned.
func (l *lane) listen(gone func()) (stop func()) {
	done := make(chan struct{})
	bell := time.AfterFunc(gatherTime, func() {
		defer close(done)
		if _, err := l.in.Peek(1); err != nil {
			gone()
		}
	})
	return func() {
		if bell.Stop() {
			return
		}
		_ = l.conn.SetReadDeadline(time.Unix(1, 0)) // fails with the connection, which the next read notices
		<-done
		_ = l.conn.SetReadDeadline(time.Time{})
	}
}

// laneAnswer is an answer that goes out as one piece, with its length, unless it is flushed
// before its end or large: then it goes in chunks.
type laneAnswer struct {
	conn   io.Writer
	header http.Header
	last   bool // the connection carries nothing behind it

	mu     sync.Mutex
	status int
	body   bytes.Buffer // what has not gone yet
	begun  bool         // the header has gone
	err    error
}

func (a *laneAnswer) Header() http.Header { return a.header }

func (a *laneAnswer) WriteHeader(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.status == 0 {
		a.status = status
	}
}

func (a *laneAnswer) Write(b []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.body.Write(b)
	if a.body.Len() > maxHeld {
		a.send(false)
	}
	return len(b), a.err
}

// FlushError sends what there is. An http.ResponseController calls it.
func (a *laneAnswer) FlushError() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(false)
	return a.err
}

// Flush implements http.Flusher.
func (a *laneAnswer) Flush() { _ = a.FlushError() }

func (a *laneAnswer) end() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.send(true)
	return a.err
}

// send writes what there is, at the end of the answer with what ends it. It is called with
// the lock held.
func (a *laneAnswer) send(end bool) {
	var out bytes.Buffer
	whole := end && !a.begun
	if !a.begun {
		a.head(&out, whole)
		a.begun = true
	}
	switch n := a.body.Len(); {
	case whole:
		a.body.WriteTo(&out)
	case n > 0:
		fmt.Fprintf(&out, "%x\r\n", n)
		a.body.WriteTo(&out)
		out.WriteString("\r\n")
	}
	if end && !whole {
		out.WriteString("0\r\n\r\n")
	}
	if a.err == nil && out.Len() > 0 {
		_, a.err = a.conn.Write(out.Bytes())
	}
}

// head writes the header. That of a whole answer says how long it is.
func (a *laneAnswer) head(out *bytes.Buffer, whole bool) {
	status := a.status
	if status == 0 {
		status = http.StatusOK
	}
	fmt.Fprintf(out, "HTTP/1.1 %03d %s\r\n", status, http.StatusText(status))
	a.last = a.last || a.header.Get("Connection") == "close"
	if a.last {
		a.header.Set("Connection", "close")
	}
	a.header.Del("Content-Length")
	a.header.Del("Transfer-Encoding")
	if whole {
		a.header.Set("Content-Length", strconv.Itoa(a.body.Len()))
	} else {
		a.header.Set("Transfer-Encoding", "chunked")
	}
	_ = a.header.Write(out) // to memory
	out.WriteString("\r\n")
}
