package guestclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/guestapi"
	"github.com/berth-dev/berth/sandbox"
)

// carryFrom is the size from which on the bytes of an upload are worth a way past
// the link.
const carryFrom = 64 << 10

// carry reserves a way past the link; nil if there is none.
func (c *Client) carry() driver.Carriage {
	if c.carrier == nil {
		return nil
	}
	if way, ok := c.carrier.Carry(); ok {
		return way
	}
	return nil
}

func giveBack(way driver.Carriage) {
	if way != nil {
		way.Close()
	}
}

// uploadWay takes an upload's bytes past the link, if the guest agrees and they are
// many. The transport reads the body once the guest has said whether it
// takes it.
type uploadWay struct {
	ctx     context.Context
	cancel  context.CancelFunc
	file    atomic.Int64 // the guest's descriptor; -1 if it has named none
	trailer http.Header  // of the request

	mu   sync.Mutex
	way  driver.Carriage // nil once it was given back
	busy bool            // the way is in use, and given back at the end of that
	over bool            // nobody waits any more

	begun bool
	rest  io.Reader // what goes over the link
}

// offer puts a way past the link into a request. The caller ends it when the request
// has ended.
func offer(req *http.Request, way driver.Carriage) (*uploadWay, *http.Request) {
	u := &uploadWay{way: way, trailer: http.Header{guestapi.CarriedTrailer: nil}}
	u.ctx, u.cancel = context.WithCancel(req.Context())
	u.file.Store(-1)
	req.Header.Set(guestapi.CarryHeader, "1")
	req.Trailer = u.trailer
	return u, req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(_ int, h textproto.MIMEHeader) error {
			if n, err := strconv.ParseInt(h.Get(guestapi.CarryHeader), 10, 32); err == nil && n >= 0 {
				u.file.Store(n)
			}
			return nil
		}}))
}

// end gives the way back, now or when nothing moves on it any more.
func (u *uploadWay) end() {
	u.cancel()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.over = true
	u.giveBack()
}

// giveBack needs mu.
func (u *uploadWay) giveBack() {
	if u.over && !u.busy && u.way != nil {
		u.way.Close()
		u.way = nil
	}
}

// fill moves the bytes of from into the guest's file.
func (u *uploadWay) fill(file int, from io.Reader) (int64, error) {
	u.mu.Lock()
	if u.over {
		u.mu.Unlock()
		return 0, errClosed
	}
	u.busy = true
	u.mu.Unlock()
	n, err := u.way.Fill(u.ctx, file, from)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.busy = false
	u.giveBack()
	return n, err
}

// read gives the transport what goes over the link: a small body, or none.
func (u *uploadWay) read(b *bodySource, p []byte) (int, error) {
	if !u.begun {
		u.begun = true
		if err := u.begin(b); err != nil {
			return 0, err
		}
	}
	return u.rest.Read(p)
}

func (u *uploadWay) begin(b *bodySource) error {
	all := readerFunc(b.take)
	file := u.file.Load()
	if file < 0 {
		u.rest = all
		return nil
	}
	first := make([]byte, carryFrom)
	n, err := io.ReadFull(all, first)
	first = first[:n]
	u.rest = bytes.NewReader(first)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) && b.failure() == nil:
		return nil
	case err != nil:
		return err
	}
	size, err := u.fill(int(file), io.MultiReader(bytes.NewReader(first), all))
	errno := syscall.Errno(0)
	switch {
	case errors.Is(err, driver.ErrNotCarried):
		u.rest = io.MultiReader(u.rest, all)
		return nil
	case b.failure() != nil:
		return *b.broken.Load()
	case err != nil && !errors.As(err, &errno):
		return err
	}
	u.rest = http.NoBody
	u.trailer.Set(guestapi.CarriedTrailer, fmt.Sprintf("%d %d", size, uint16(errno)))
	return nil
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// lent reads how the guest lends what was asked for of a file. It is nil if it does
// not.
func lent(h http.Header, r sandbox.ReadRange) (*carriedBody, error) {
	told := h.Get(guestapi.CarryHeader)
	if told == "" {
		return nil, nil
	}
	b := &carriedBody{}
	n, err := fmt.Sscanf(told, "%d %d %d", &b.file, &b.offset, &b.left)
	if err != nil || n != 3 || b.file < 0 || b.file > math.MaxInt32 || b.offset != r.Offset || b.left <= 0 || r.Length > 0 && b.left > r.Length {
		return nil, errorf("malformed %s %.80q", guestapi.CarryHeader, told)
	}
	return b, nil
}

// carriedBody is a download that does not pass the link.
type carriedBody struct {
	op     string
	ctx    context.Context
	cancel context.CancelFunc
	hold   io.Closer // the guest's answer: while it is open, so is the file
	way    driver.Carriage
	file   int
	offset int64
	left   int64
	again  func(sandbox.ReadRange) (io.ReadCloser, error) // the same over the link

	in   io.ReadCloser // once Read is used
	done chan struct{} // closed when nothing moves any more, once Read is used
}

// WriteTo gives w all that is left.
func (b *carriedBody) WriteTo(w io.Writer) (int64, error) {
	if b.in != nil {
		return io.Copy(w, b.in)
	}
	to := &noting{w: w}
	n, err := b.way.Drain(b.ctx, b.file, b.offset, b.left, to)
	rest := sandbox.ReadRange{Offset: b.offset + n, Length: b.left - n}
	errno := syscall.Errno(0)
	switch {
	case errors.Is(err, driver.ErrNotCarried):
		body, err := b.again(rest)
		if err != nil {
			return n, err
		}
		defer body.Close()
		return io.Copy(w, body)
	case to.err != nil:
		return n, to.err
	case err == nil && rest.Length > 0:
		return n, sandbox.Errorf(b.op, sandbox.Conflict, "the file became shorter while it was read")
	case errors.As(err, &errno):
		return n, &sandbox.Error{Op: b.op, Kind: sandbox.Internal, Err: err}
	case err != nil:
		return n, unreached(b.ctx, b.op, err)
	}
	return n, nil
}

// noting remembers the error of a writer.
type noting struct {
	w   io.Writer
	err error
}

func (n *noting) Write(p []byte) (int, error) {
	m, err := n.w.Write(p)
	if err != nil {
		n.err = err
	}
	return m, err
}

// Read is for those who do not take what WriteTo gives.
func (b *carriedBody) Read(p []byte) (int, error) {
	if b.in == nil {
		in, out := io.Pipe()
		b.done = make(chan struct{})
		whole := *b // without in
		go func() { // ends when all is read, or with Close
			defer close(b.done)
			_, err := whole.WriteTo(out)
			out.CloseWithError(err)
		}()
		b.in = in
	}
	return b.in.Read(p)
}

// Close ends the download.
func (b *carriedBody) Close() error {
	b.cancel()
	if b.in != nil {
		b.in.Close()
		<-b.done
	}
	err := b.hold.Close()
	b.way.Close()
	return err
}
