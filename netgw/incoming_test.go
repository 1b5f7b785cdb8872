package netgw

import (
	"bytes"
	"math/rand/v2"
	"os"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
)

// frames is an incoming that reads what send writes, one frame a call.
func frames(t *testing.T) (in *incoming, send func([]byte)) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	from, to := os.NewFile(uintptr(fds[0]), "from"), os.NewFile(uintptr(fds[1]), "to")
	t.Cleanup(func() { from.Close(); to.Close() })
	raw, err := from.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	in = newIncoming(raw)
	t.Cleanup(in.release)
	return in, func(b []byte) {
		if _, err := to.Write(b); err != nil {
			t.Fatal(err)
		}
	}
}

// segment is a packet of TCP with so many bytes of options and of data.
func segment(proto tcpip.NetworkProtocolNumber, options, data int) []byte {
	network := header.IPv4MinimumSize
	if proto == header.IPv6ProtocolNumber {
		network = header.IPv6MinimumSize
	}
	b := make([]byte, network+header.TCPMinimumSize+options+data)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	if proto == header.IPv6ProtocolNumber {
		b[0], b[6] = 0x60, uint8(header.TCPProtocolNumber)
	} else {
		b[0], b[9] = 0x45, uint8(header.TCPProtocolNumber)
	}
	b[network+header.TCPDataOffset] = uint8(header.TCPMinimumSize+options) / 4 << 4
	return b
}

// TestPacketsComeWhole reads packets of every make, each after one of another make,
// and finds every byte in its place.
func TestPacketsComeWhole(t *testing.T) {
	in, send := frames(t)
	var packets [][]byte
	var protos []tcpip.NetworkProtocolNumber
	for _, proto := range []tcpip.NetworkProtocolNumber{header.IPv4ProtocolNumber, header.IPv6ProtocolNumber, header.ARPProtocolNumber} {
		for _, options := range []int{0, 12, 40} {
			for _, data := range []int{0, 1, 7, 1448, copyBelow - 1, copyBelow + 1, 60 << 10} {
				packets, protos = append(packets, segment(proto, options, data)), append(protos, proto)
			}
		}
		for _, size := range []int{0, 1, 19, 28, 33, 41} {
			packets, protos = append(packets, segment(proto, 0, 8)[:size]), append(protos, proto)
		}
	}
	for range 1000 {
		i := rand.IntN(len(packets))
		frame := make([]byte, vnetHeader+header.EthernetMinimumSize, len(packets[i])+64)
		header.Ethernet(frame[vnetHeader:]).Encode(&header.EthernetFields{Type: protos[i]})
		send(append(frame, packets[i]...))
		size, err := in.next()
		if err != nil || size != len(packets[i]) {
			t.Fatalf("a packet of %d bytes came as one of %d, %v", len(packets[i]), size, err)
		}
		if size == 0 {
			continue
		}
		if shown := in.shown(size); len(shown) < min(size, judged) || !bytes.Equal(shown, packets[i][:len(shown)]) {
			t.Fatalf("of %d bytes of protocol %x %x are shown, want %x", size, protos[i], shown, packets[i][:min(size, judged)])
		}
		b := in.packet(protos[i], size)
		if got := b.Flatten(); !bytes.Equal(got, packets[i]) {
			t.Fatalf("a packet of %d bytes of protocol %x came as another", size, protos[i])
		}
		b.Release()
	}
}

// TestHeadersAreApart: the stack copies the chunk that it finds headers in, so large
// data must not be in it.
func TestHeadersAreApart(t *testing.T) {
	for _, proto := range []tcpip.NetworkProtocolNumber{header.IPv4ProtocolNumber, header.IPv6ProtocolNumber} {
		for _, options := range []int{0, 12, 40} {
			in, send := frames(t)
			p := segment(proto, options, 60<<10)
			for n := range 3 {
				send(append(make([]byte, vnetHeader+header.EthernetMinimumSize), p...))
				size, err := in.next()
				if err != nil {
					t.Fatal(err)
				}
				b := in.packet(proto, size)
				var pieces []int
				b.Apply(func(v *buffer.View) { pieces = append(pieces, v.Size()) })
				if n > 0 && (len(pieces) != 2 || pieces[1] != 60<<10) {
					t.Errorf("packet %d of protocol %x with %d bytes of options lies in pieces of %d bytes", n, proto, options, pieces)
				}
				b.Release()
			}
		}
	}
}
