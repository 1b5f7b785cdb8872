package netgw

import (
	"cmp"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

const (
	// packetMax is the longest packet that the kernel hands over uncut. It is what a
	// chunk of the stack's pool holds.
	packetMax = buffer.MaxChunkSize

	// copyBelow is the size below which a packet's data is copied into a chunk of its
	// size: it would occupy a whole one for as long as the stack keeps it.
	copyBelow = packetMax / 2

	// startMin and startMax bound what is read of a packet apart from the rest.
	startMin = header.IPv4MinimumSize + header.TCPMinimumSize
	startMax = header.IPv6MinimumSize + header.TCPHeaderMaximumSize

	// judged is how much of each packet is shown at least: its headers without options,
	// which is more than an answer to its sender repeats.
	judged = header.IPv6MinimumSize + header.TCPMinimumSize
)

// incoming reads frames from a TAP. Large packets are read to where the stack keeps
// them. Their headers go to a chunk of their own: the stack copies the whole chunk
// that it finds headers in when it looks at them a second time. How long they are is
// known by the packets before, which mostly are of the same connection.
type incoming struct {
	raw    syscall.RawConn
	head   [vnetHeader + header.EthernetMinimumSize]byte
	start  [startMax]byte // the first bytes of the packet
	split  int            // how many of them are not in room
	room   *buffer.View   // for the rest of the next packet; nil while none is there
	pieces [3][]byte      // head, start and room
}

func newIncoming(raw syscall.RawConn) *incoming {
	in := &incoming{raw: raw}
	in.pieces[0] = in.head[:]
	in.expect(startMin)
	return in
}

func (in *incoming) renew() {
	in.room = buffer.NewViewSize(packetMax)
	in.pieces[2] = in.room.AsSlice()
}

// expect sets how long the next packet's headers are thought to be.
func (in *incoming) expect(headers int) {
	in.split = min(max(headers, startMin), startMax)
	in.pieces[1] = in.start[:in.split]
}

// next waits for a frame, and tells how long its packet is: 0 if it has none.
func (in *incoming) next() (size int, err error) {
	var n int
	cerr := in.raw.Read(func(fd uintptr) bool {
		if in.room == nil {
			in.renew()
		}
		n, err = ignoringEINTR(func() (int, error) { return unix.Readv(int(fd), in.pieces[:]) })
		if !errors.Is(err, unix.EAGAIN) {
			return true
		}
		in.release() // an idle link holds no room
		return false
	})
	if err := cmp.Or(cerr, err); err != nil {
		return 0, err
	}
	size = max(0, n-len(in.head))
	if size > in.split && in.split < judged {
		copy(in.start[in.split:judged], in.pieces[2][:size-in.split])
	}
	return size, nil
}

// shown is the beginning of a packet of so many bytes that next has read, until the
// next call. It is all that a judge may look at.
func (in *incoming) shown(size int) []byte { return in.start[:min(size, max(in.split, judged))] }

// packet gives away the packet of so many bytes that next has read.
func (in *incoming) packet(proto tcpip.NetworkProtocolNumber, size int) buffer.Buffer {
	b := buffer.MakeWithView(buffer.NewViewWithData(in.start[:min(size, in.split)]))
	if rest := size - in.split; rest > 0 {
		data := buffer.MakeWithView(in.data(rest))
		b.Merge(&data) // to append it would fill up the headers' chunk
	}
	in.expect(headersOf(proto, in.shown(size)))
	return b
}

// data gives away the first n bytes of room.
func (in *incoming) data(n int) *buffer.View {
	if n < copyBelow {
		return buffer.NewViewWithData(in.pieces[2][:n])
	}
	v := in.room
	v.CapLength(n)
	in.room = nil
	return v
}

// headersOf is the length of a packet's headers, as far as b shows it.
func headersOf(proto tcpip.NetworkProtocolNumber, b []byte) int {
	network, transport := 0, uint8(0)
	switch {
	case proto == header.IPv4ProtocolNumber && len(b) >= header.IPv4MinimumSize:
		h := header.IPv4(b)
		network, transport = int(h.HeaderLength()), h.Protocol()
	case proto == header.IPv6ProtocolNumber && len(b) >= header.IPv6MinimumSize:
		network, transport = header.IPv6MinimumSize, header.IPv6(b).NextHeader()
	}
	if transport != uint8(header.TCPProtocolNumber) || len(b) < network+header.TCPDataOffset+1 {
		return startMin
	}
	return network + int(header.TCP(b[network:]).DataOffset())
}

// release gives the room back.
func (in *incoming) release() {
	if in.room != nil {
		in.room.Release()
		in.room = nil
	}
}
