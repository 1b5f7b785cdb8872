package netgw

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// peekTime bounds the wait for a client's first bytes when they decide.
const peekTime = 30 * time.Second

// connect serves one attempt of the sandbox to connect, from its SYN to its end.
func (l *Link) connect(r *tcp.ForwarderRequest) {
	id := r.ID()
	seq, known := l.syns.take(id)
	to := netip.AddrPortFrom(addrOf(id.LocalAddress), id.LocalPort)
	if asksGateway(to) {
		l.answerStream(r)
		return
	}
	if by := l.tenant.diverter(); by != nil && to.Port() != 53 && to.Port() != 853 { // names are asked of the gateway
		l.divert(r, to, by)
		return
	}
	f, d := l.gateway.begin(l.ctx, l.tenant, false, to)
	if f == nil {
		r.Complete(true)
		return
	}
	defer f.finish()
	var up net.Conn
	if !d.late {
		ctx, cancel := context.WithTimeout(f.ctx, dialTime)
		c, err := l.gateway.dial(ctx, "tcp", to.String())
		cancel()
		if err != nil {
			f.fail(err)
			refused := errors.Is(err, unix.ECONNREFUSED) || f.ctx.Err() != nil || !known
			r.Complete(refused)
			if !refused {
				l.unreachable(id, seq)
			}
			return
		}
		up = c
		defer c.Close()
	}
	guest, err := l.accept(r)
	if err != nil {
		f.fail(err)
		return
	}
	defer guest.Close()
	stop := context.AfterFunc(f.ctx, func() { guest.abort(); abort(up) })
	defer stop()
	f.serve(guest, up, d)
}

// guestConn is a connection that the sandbox has opened.
type guestConn struct {
	*gonet.TCPConn
	ep    tcpip.Endpoint
	queue *waiter.Queue // of ep's events
}

// abort ends the connection with a reset.
func (c *guestConn) abort() { c.ep.Abort() }

// abort ends an upstream's connection with a reset, if it can.
func abort(c net.Conn) {
	if c == nil {
		return
	}
	if t, ok := c.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}

// accept completes the sandbox's handshake.
func (l *Link) accept(r *tcp.ForwarderRequest) (*guestConn, error) {
	var wq waiter.Queue
	ep, e := r.CreateEndpoint(&wq)
	r.Complete(e != nil)
	if e != nil {
		return nil, errors.New(e.String())
	}
	o := ep.SocketOptions()
	o.SetDelayOption(false)
	o.SetKeepAlive(true)
	idle := tcpip.KeepaliveIdleOption(2 * time.Minute)
	ep.SetSockOpt(&idle)
	l.tenant.mu.Lock()
	open := len(l.tenant.flows)
	l.tenant.mu.Unlock()
	window := int64(windowOf(open)) // set, it does not grow by itself
	o.SetReceiveBufferSize(window, true)
	o.SetSendBufferSize(window, true)
	return &guestConn{gonet.NewTCPConn(&wq, ep), ep, &wq}, nil
}

// windowOf is the size of a new connection's buffers, in each direction, when a
// sandbox has so many open: the more it has, the less each may hold of the
// server's memory.
func windowOf(open int) int {
	const all = 32 << 20
	return max(32<<10, min(streamWindow, all/max(open, 1)))
}

// serve passes a connection's bytes, after what decides about them is known. up
// is nil if only the client's first bytes say where to.
func (f *flow) serve(guest *guestConn, up net.Conn, d decision) {
	s := &splice{flow: f, guest: guest, up: up}
	if !d.peek {
		s.run(nil)
		return
	}
	if up != nil {
		s.download() // a server may be the first to speak
	}
	first, speech, host, err := f.peek(guest, d.late)
	if err == io.EOF && up != nil { // nothing is to be judged: it listens only
		s.run(nil)
		return
	}
	if err != nil {
		s.abort()
		return
	}
	look, ok := f.heard(speech, host, d)
	if !ok {
		s.abort()
		return
	}
	if look {
		f.hand(s, first, speech, host)
		return
	}
	if up == nil {
		c, err := f.dialHost(f.ctx, host)
		if err != nil {
			f.outOfReach(err)
			guest.abort()
			return
		}
		defer c.Close()
		stop := context.AfterFunc(f.ctx, func() { abort(c) })
		defer stop()
		s.up = c
	}
	s.run(first)
}

// outOfReach marks the flow refused or failed, as err has it.
func (f *flow) outOfReach(err error) {
	if refused := (errCut{}); errors.As(err, &refused) {
		f.deny("", refused.reason)
		return
	}
	f.fail(err)
}

// peek reads the client's first bytes until they are clear. One that says nothing
// may take its time, unless there is nobody yet whom it could be listening to.
func (f *flow) peek(guest *guestConn, late bool) (first []byte, s speech, host string, err error) {
	defer guest.SetReadDeadline(time.Time{})
	b := make([]byte, 4096)
	for {
		if late || len(first) > 0 {
			guest.SetReadDeadline(f.began.Add(dialTime + peekTime))
			late = false
		}
		n, err := guest.Read(b)
		first = append(first, b[:n]...)
		if s, host = listen(first); s != unclear {
			return first, s, host, nil
		}
		switch {
		case err != nil && len(first) == 0:
			return nil, unclear, "", err
		case err != nil:
			f.deny("", "its first bytes are the beginning of a request that does not go on")
			return nil, unclear, "", err
		case len(first) >= maxPeek:
			f.deny("", "its first bytes are longer than is looked at")
			return nil, unclear, "", errCut{}
		}
	}
}

// heard judges a connection by its first bytes. look: an interceptor takes it.
func (f *flow) heard(s speech, host string, d decision) (look, ok bool) {
	f.t.mu.Lock()
	r := f.t.rules
	f.t.mu.Unlock()
	if r == nil {
		f.deny("", noPolicy)
		return false, false
	}
	f.mu.Lock()
	f.held, f.peeked, f.host = false, true, host
	f.mu.Unlock()
	switch {
	case s == malformed:
		f.deny("", "its first bytes are malformed")
		return false, false
	case host == "" && (!d.opaque || s != opaque && r.byNameAlone(f.to)):
		f.deny("", hostHidden)
		return false, false
	case host == "":
		return false, true
	}
	h, look := r.host(host, f.to)
	if !h.allowed {
		f.deny(h.rule, h.reason)
		return false, false
	}
	look = look || s == speaksHTTP && r.byNameAlone(f.to) // its next request may name another host
	if look && f.g.intercept == nil {
		f.deny(h.rule, "it is plain HTTP, and only the name of its host allows it: each request would have to be looked at")
		return false, false
	}
	f.mu.Lock()
	f.rule, f.looked = h.rule, look
	f.mu.Unlock()
	return look, true
}

// hand gives the connection to the interceptor.
func (f *flow) hand(s *splice, first []byte, sp speech, host string) {
	if s.up != nil {
		if !s.stopDownload() {
			f.deny("", "its server spoke before the client's request")
			s.abort()
			return
		}
		f.mu.Lock()
		f.spare = &counted{Conn: s.up, flow: f}
		f.mu.Unlock()
	}
	f.t.mu.Lock()
	out := &Flow{Sandbox: f.t.id, Name: f.t.name, Account: f.t.account, Host: host, Addr: f.to, TLS: sp == speaksTLS, f: f}
	f.t.mu.Unlock()
	err := f.g.intercept.Intercept(f.ctx, out, &replay{Conn: s.guest, first: first})
	if err != nil && f.ctx.Err() == nil {
		f.mu.Lock()
		f.reason = cause(err)
		f.mu.Unlock()
	}
}

// replay is a connection whose first bytes were read before.
type replay struct {
	net.Conn
	first []byte
}

func (r *replay) Read(b []byte) (int, error) {
	if len(r.first) > 0 {
		n := copy(b, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(b)
}

// CloseWrite ends the direction to the sandbox.
func (r *replay) CloseWrite() error { return r.Conn.(*guestConn).CloseWrite() }

// counted is an upstream's connection whose bytes count as the flow's.
type counted struct {
	net.Conn
	flow *flow
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.flow.add(0, n)
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.flow.add(n, 0)
	return n, err
}

// add counts bytes that have passed.
func (f *flow) add(sent, received int) {
	if sent > 0 {
		f.sent.Add(int64(sent))
		f.t.traffic.sent.Add(int64(sent))
		f.g.count.sent.Add(int64(sent))
	}
	if received > 0 {
		f.received.Add(int64(received))
		f.t.traffic.received.Add(int64(received))
		f.g.count.received.Add(int64(received))
	}
}

func addrOf(a tcpip.Address) netip.Addr {
	addr, _ := netip.AddrFromSlice(a.AsSlice())
	return addr
}
