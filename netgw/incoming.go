package netgw

import (
	"cmp"
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

const (
	// packetMax is the longest packet that the kernel hands over uncut. It is what a
	// chunk of the stack's pool holds.
	packetMax = buffer.MaxChunkSize

	// copyBelow is the size below which a packet is copied into a chunk of its size:
	// it would occupy a whole one for as long as the stack keeps it.
	copyBelow = packetMax / 2
)

// incoming reads frames from a TAP. Large packets are read to where the stack keeps
// them.
type incoming struct {
	raw    syscall.RawConn
	head   [vnetHeader + header.EthernetMinimumSize]byte
	room   *buffer.View // for the next packet
	pieces [2][]byte    // head and room
}

func newIncoming(raw syscall.RawConn) *incoming {
	in := &incoming{raw: raw}
	in.pieces[0] = in.head[:]
	in.renew()
	return in
}

func (in *incoming) renew() {
	in.room = buffer.NewViewSize(packetMax)
	in.pieces[1] = in.room.AsSlice()
}

// next waits for a frame. What it gives is good until the next call; packet is nil
// if the frame has none.
func (in *incoming) next() (head, packet []byte, err error) {
	var n int
	cerr := in.raw.Read(func(fd uintptr) bool {
		n, err = ignoringEINTR(func() (int, error) { return unix.Readv(int(fd), in.pieces[:]) })
		return !errors.Is(err, unix.EAGAIN)
	})
	if err := cmp.Or(cerr, err); err != nil {
		return nil, nil, err
	}
	if n <= len(in.head) {
		return in.head[:], nil, nil
	}
	return in.head[:], in.pieces[1][:n-len(in.head)], nil
}

// view gives away the packet of n bytes that next has read.
func (in *incoming) view(n int) *buffer.View {
	if n < copyBelow {
		return buffer.NewViewWithData(in.pieces[1][:n])
	}
	v := in.room
	v.CapLength(n)
	in.renew()
	return v
}

func (in *incoming) release() { in.room.Release() }
