package netgw

import (
	"sync"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

const (
	// directBelow is the size below which a packet is written by whoever sends it, if
	// none waits: to hand it over would cost more.
	directBelow = 8 << 10

	// maxOutgoing bounds the bytes that wait for a TAP. What finds no room is lost, as
	// on a wire.
	maxOutgoing = 8 << 20
)

// outgoing writes a link's packets, in their order, while their senders fetch more.
type outgoing struct {
	to   *tap
	wake chan struct{}
	done chan struct{} // closed when the writer has ended

	mu     sync.Mutex
	queue  []*stack.PacketBuffer
	bytes  int // in queue, and with the writer
	closed bool
}

var _ stack.QueueingDiscipline = (*outgoing)(nil)

// newOutgoing starts the writer, which ends with Close.
func newOutgoing(to *tap) *outgoing {
	o := &outgoing{to: to, wake: make(chan struct{}, 1), done: make(chan struct{})}
	go o.run()
	return o
}

// WritePacket implements stack.QueueingDiscipline.
func (o *outgoing) WritePacket(p *stack.PacketBuffer) tcpip.Error {
	o.mu.Lock()
	defer o.mu.Unlock()
	size := p.Size()
	switch {
	case o.closed:
		return &tcpip.ErrClosedForSend{}
	case o.bytes == 0 && size < directBelow:
		if err := o.to.write(p); err != nil {
			return &tcpip.ErrNoBufferSpace{}
		}
		return nil
	case o.bytes+size > maxOutgoing:
		return &tcpip.ErrNoBufferSpace{}
	}
	o.queue, o.bytes = append(o.queue, p.IncRef()), o.bytes+size
	select {
	case o.wake <- struct{}{}:
	default:
	}
	return nil
}

func (o *outgoing) run() {
	defer close(o.done)
	var batch []*stack.PacketBuffer
	for range o.wake {
		for {
			o.mu.Lock()
			batch, o.queue = o.queue, batch[:0]
			o.mu.Unlock()
			if len(batch) == 0 {
				break
			}
			for i, p := range batch {
				size := p.Size()
				_ = o.to.write(p) // as on a wire
				p.DecRef()
				batch[i] = nil
				o.mu.Lock()
				o.bytes -= size
				o.mu.Unlock()
			}
		}
	}
}

// Close ends the writer when it has written what waits. It may be called again.
func (o *outgoing) Close() {
	o.mu.Lock()
	if !o.closed {
		o.closed = true
		close(o.wake)
	}
	o.mu.Unlock()
	<-o.done
}
