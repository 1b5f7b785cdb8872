package netgw

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

// Bounds on a connection that carries questions.
const (
	questionPort       = 53
	questionsPerStream = 256
	questionIdle       = 8 * time.Second // for the next question, and for the answer to be taken
	dnsHeader          = 12              // bytes of a message's header (RFC 1035, 4.1.1)
)

// asking answers a sandbox's questions at the gateway's own addresses. Nothing of
// it waits while nobody asks: a packet starts what answers it.
type asking struct {
	busy    chan struct{} // a place for each question under way
	streams chan struct{} // a place for each connection
	ports   []*inbox
}

// openDNS begins to answer, over UDP and TCP and both families.
func (l *Link) openDNS() error {
	l.dns.busy = make(chan struct{}, questionsAtOnce)
	l.dns.streams = make(chan struct{}, dnsConnections)
	for _, at := range []struct {
		proto tcpip.NetworkProtocolNumber
		addr  netip.Addr
	}{{ipv4.ProtocolNumber, GatewayAddr}, {ipv6.ProtocolNumber, GatewayAddr6}} {
		p := &inbox{l: l}
		ep, e := l.stack.NewEndpoint(udp.ProtocolNumber, at.proto, &p.queue)
		if e != nil {
			return errors.New("listen for questions: " + e.String())
		}
		p.ep = ep
		l.dns.ports = append(l.dns.ports, p)
		p.entry = waiter.NewFunctionEntry(waiter.ReadableEvents, func(waiter.EventMask) { p.stir() })
		p.queue.EventRegister(&p.entry)
		if e := ep.Bind(tcpip.FullAddress{NIC: nic, Addr: tcpip.AddrFromSlice(at.addr.AsSlice()), Port: questionPort}); e != nil {
			return errors.New("listen for questions: " + e.String())
		}
	}
	return nil
}

// close ends what answers datagrams. Connections end with the link.
func (a *asking) close() {
	for _, p := range a.ports {
		p.queue.EventUnregister(&p.entry)
		p.ep.Close()
	}
}

// asksGateway reports whether a connection is one that carries questions.
func asksGateway(to netip.AddrPort) bool {
	return to.Port() == questionPort && (to.Addr() == GatewayAddr || to.Addr() == GatewayAddr6)
}

// inbox is one address at which datagrams with questions come.
type inbox struct {
	l     *Link
	ep    tcpip.Endpoint
	queue waiter.Queue
	entry waiter.Entry

	mu      sync.Mutex
	fresh   bool // something may have come since the reader last looked
	reading bool
}

// stir has the datagrams read that are there. It must not wait: the link's reader
// calls it.
func (p *inbox) stir() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fresh = true
	if !p.reading {
		p.reading = true
		p.l.flows.Go(p.read)
	}
}

// read ends when there is nothing more to read.
func (p *inbox) read() {
	for {
		p.mu.Lock()
		if !p.fresh {
			p.reading = false
			p.mu.Unlock()
			return
		}
		p.fresh = false
		p.mu.Unlock()
		for p.next() {
		}
	}
}

// next takes one datagram, if there is one. What finds no place is asked again.
func (p *inbox) next() bool {
	var b bytes.Buffer
	r, e := p.ep.Read(&b, tcpip.ReadOptions{NeedRemoteAddr: true})
	if e != nil {
		return false
	}
	select {
	case p.l.dns.busy <- struct{}{}:
		p.l.flows.Go(func() {
			defer func() { <-p.l.dns.busy }()
			if reply := p.l.reply(b.Bytes(), false); reply != nil {
				p.ep.Write(bytes.NewReader(reply), tcpip.WriteOptions{To: &r.RemoteAddr}) // lost, as on a wire, if there is no room
			}
		})
	default:
	}
	return true
}

// answerStream serves a connection that carries questions. It waits for a place
// before the handshake is completed.
func (l *Link) answerStream(r *tcp.ForwarderRequest) {
	wait := time.NewTimer(questionTime)
	defer wait.Stop()
	select {
	case l.dns.streams <- struct{}{}:
		defer func() { <-l.dns.streams }()
	case <-l.ctx.Done():
		r.Complete(true)
		return
	case <-wait.C:
		r.Complete(true)
		return
	}
	c, err := l.accept(r)
	if err != nil {
		return // it was reset
	}
	defer c.Close()
	defer context.AfterFunc(l.ctx, c.abort)()
	for range questionsPerStream {
		if err := l.answerNext(c); err != nil {
			return // of no interest to anyone: the sandbox has ended it, or has fallen silent
		}
	}
}

// answerNext answers one question of a connection.
func (l *Link) answerNext(c net.Conn) error {
	c.SetDeadline(time.Now().Add(questionIdle))
	var length [2]byte
	if _, err := io.ReadFull(c, length[:]); err != nil {
		return err
	}
	b := make([]byte, binary.BigEndian.Uint16(length[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	select {
	case l.dns.busy <- struct{}{}:
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	}
	reply := l.reply(b, true)
	<-l.dns.busy
	if reply == nil {
		return errors.New("no question")
	}
	c.SetDeadline(time.Now().Add(questionIdle))
	_, err := c.Write(append(binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(reply)), uint16(len(reply))), reply...))
	return err
}

// reply answers the message in b, whatever it is. Nil: it gets no answer.
func (l *Link) reply(b []byte, stream bool) []byte {
	const response, opcode = 1 << 15, 0xf
	if len(b) < dnsHeader {
		return nil
	}
	bits := binary.BigEndian.Uint16(b[2:])
	if bits&response != 0 {
		return nil
	}
	code := int(bits >> 11 & opcode)
	m := new(dns.Msg)
	var answer *dns.Msg
	switch {
	case code != dns.OpcodeQuery:
		answer = refusal(b, code, dns.RcodeNotImplemented)
	case binary.BigEndian.Uint16(b[4:]) != 1 || m.Unpack(b) != nil || len(m.Question) != 1:
		answer = refusal(b, code, dns.RcodeFormatError)
	default:
		answer = l.question(m, stream)
	}
	out, err := answer.Pack()
	if err != nil {
		out, err = refusal(b, code, dns.RcodeServerFailure).Pack()
	}
	if err != nil || len(out) > dns.MaxMsgSize {
		return nil
	}
	return out
}

// refusal answers a message of which no more than the header is looked at.
func refusal(b []byte, opcode, rcode int) *dns.Msg {
	m := new(dns.Msg)
	m.Id, m.Response, m.Opcode, m.Rcode = binary.BigEndian.Uint16(b), true, opcode, rcode
	return m
}
