package netgw

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// vnetHeader is the length of struct virtio_net_hdr, which precedes every
	// frame on a TAP with IFF_VNET_HDR (linux/virtio_net.h).
	vnetHeader = 10

	// gsoMax is the longest segment that is left to the kernel to cut.
	gsoMax = 65000
)

// Fields of struct virtio_net_hdr.
const (
	vnetNeedsChecksum = 1
	vnetGSOv4         = 1
	vnetGSOv6         = 4
)

// tap is a link endpoint on a TAP's descriptor. The runtime's poller waits for
// frames, so that an idle link costs no thread; large segments cross uncut in
// both directions.
type tap struct {
	file *os.File
	raw  syscall.RawConn // file's descriptor, never one that took its number
	done chan struct{}

	// admit judges a packet before the stack gets it, by its beginning; nil admits all.
	admit func(tcpip.NetworkProtocolNumber, []byte) bool

	attach     sync.Once
	dispatcher atomic.Pointer[stack.NetworkDispatcher]
}

var _ stack.LinkEndpoint = (*tap)(nil)

// newTAP takes ownership of fd, which must not block.
func newTAP(fd int) (*tap, error) {
	file := os.NewFile(uintptr(fd), "tap")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("open TAP: %w", err)
	}
	return &tap{file: file, raw: raw, done: make(chan struct{})}, nil
}

func (t *tap) MTU() uint32                             { return mtu }
func (t *tap) SetMTU(uint32)                           {}
func (t *tap) MaxHeaderLength() uint16                 { return header.EthernetMinimumSize }
func (t *tap) LinkAddress() tcpip.LinkAddress          { return tcpip.LinkAddress(gatewayMAC) }
func (t *tap) SetLinkAddress(tcpip.LinkAddress)        {}
func (t *tap) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }
func (t *tap) SetOnCloseAction(func())                 {}
func (t *tap) IsAttached() bool                        { return t.dispatcher.Load() != nil }
func (t *tap) GSOMaxSize() uint32                      { return gsoMax }
func (t *tap) SupportedGSO() stack.SupportedGSO        { return stack.HostGSOSupported }
func (t *tap) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityResolutionRequired | stack.CapabilityRXChecksumOffload
}

// Close ends the reading loop; Wait returns once it has.
func (t *tap) Close() { t.file.Close() }

// Wait implements stack.LinkEndpoint.
func (t *tap) Wait() {
	if t.IsAttached() {
		<-t.done
	}
}

// AddHeader implements stack.LinkEndpoint.
func (t *tap) AddHeader(p *stack.PacketBuffer) {
	header.Ethernet(p.LinkHeader().Push(header.EthernetMinimumSize)).Encode(&header.EthernetFields{
		SrcAddr: p.EgressRoute.LocalLinkAddress,
		DstAddr: p.EgressRoute.RemoteLinkAddress,
		Type:    p.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.LinkEndpoint.
func (t *tap) ParseHeader(p *stack.PacketBuffer) bool {
	h, ok := p.LinkHeader().Consume(header.EthernetMinimumSize)
	if ok {
		p.NetworkProtocolNumber = header.Ethernet(h).Type()
	}
	return ok
}

// Attach implements stack.LinkEndpoint. The stack attaches once, and detaches
// with nil when it is closed.
func (t *tap) Attach(d stack.NetworkDispatcher) {
	if d == nil {
		t.file.Close()
		return
	}
	t.attach.Do(func() {
		t.dispatcher.Store(&d)
		go t.read(d)
	})
}

// read delivers frames until the descriptor is closed or the TAP is gone. What
// the sandbox sends is taken as it is: a frame that is too short is dropped,
// and the stack judges the rest.
func (t *tap) read(d stack.NetworkDispatcher) {
	defer close(t.done)
	in := newIncoming(t.raw)
	defer in.release()
	for {
		size, err := in.next()
		if err != nil {
			return
		}
		if size == 0 {
			continue
		}
		proto := header.Ethernet(in.head[vnetHeader:]).Type()
		if t.admit != nil && !t.admit(proto, in.shown(size)) {
			continue
		}
		p := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: in.packet(proto, size)})
		p.NetworkProtocolNumber = proto
		// A frame whose checksum was left to us never crossed a wire.
		p.RXChecksumValidated = in.head[0] != 0
		d.DeliverNetworkPacket(proto, p)
		p.DecRef()
	}
}

// WritePackets implements stack.LinkEndpoint.
func (t *tap) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	for n, p := range list.AsSlice() {
		if err := t.write(p); err != nil {
			return n, &tcpip.ErrNoBufferSpace{}
		}
	}
	return list.Len(), nil
}

// write sends one packet.
func (t *tap) write(p *stack.PacketBuffer) error {
	var h [vnetHeader]byte
	describe(h[:], p)
	return t.send(append([][]byte{h[:]}, p.AsSlices()...))
}

// describe fills in how the kernel is to cut and sum the packet.
func describe(h []byte, p *stack.PacketBuffer) {
	g := p.GSOOptions
	if g.Type == stack.GSONone {
		return
	}
	binary.LittleEndian.PutUint16(h[2:], uint16(p.HeaderSize()))
	if g.NeedsCsum {
		h[0] = vnetNeedsChecksum
		binary.LittleEndian.PutUint16(h[6:], header.EthernetMinimumSize+g.L3HdrLen)
		binary.LittleEndian.PutUint16(h[8:], g.CsumOffset)
	}
	if p.Data().Size() > int(g.MSS) {
		h[1] = vnetGSOv4
		if g.Type == stack.GSOTCPv6 {
			h[1] = vnetGSOv6
		}
		binary.LittleEndian.PutUint16(h[4:], g.MSS)
	}
}

// send writes one frame of several pieces.
func (t *tap) send(bufs [][]byte) error {
	var err error
	cerr := t.raw.Control(func(fd uintptr) {
		for {
			if _, err = unix.Writev(int(fd), bufs); !errors.Is(err, unix.EINTR) {
				return
			}
		}
	})
	return cmp.Or(cerr, err)
}
