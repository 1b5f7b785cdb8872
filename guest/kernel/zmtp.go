package kernel

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Bounds on what is read from a kernel.
const (
	maxParts   = 64       // frames of one message
	maxMessage = 32 << 20 // bytes of one message
	maxCommand = 4 << 10  // bytes of one command of the transport
)

// Flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

const (
	greetingLen = 64
	shakeTime   = 10 * time.Second // for the other end to greet
	sendTime    = 30 * time.Second // for it to take a message
)

// errTooLarge is of a message that was read past and dropped.
var errTooLarge = errors.New("a message is larger than 32 MiB")

// socket is one connection to a kernel: a DEALER or a SUB of ZeroMQ.
type socket struct {
	conn net.Conn
	r    *bufio.Reader
	send sync.Mutex
}

// newSocket greets the other end of conn, and takes conn over.
func newSocket(conn net.Conn, kind string) (*socket, error) {
	s := &socket{conn: conn, r: bufio.NewReaderSize(conn, 64<<10)}
	err := conn.SetDeadline(time.Now().Add(shakeTime))
	if err == nil {
		err = s.shake(kind)
	}
	if err == nil && kind == "SUB" {
		err = s.Send([][]byte{{1}}) // to all that is published
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet the kernel: %w", err)
	}
	return s, nil
}

// shake does what ZMTP 3.0 asks for: greetings, then READY both ways.
func (s *socket) shake(kind string) error {
	var hello [greetingLen]byte
	hello[0], hello[9], hello[10] = 0xff, 0x7f, 3
	copy(hello[12:], "NULL")
	ready := append([]byte{5}, "READY"...)
	for _, p := range [][2]string{{"Socket-Type", kind}, {"Identity", ""}} {
		ready = append(append(ready, byte(len(p[0]))), p[0]...)
		ready = append(binary.BigEndian.AppendUint32(ready, uint32(len(p[1]))), p[1]...)
	}
	if _, err := s.conn.Write(append(hello[:], append([]byte{flagCommand, byte(len(ready))}, ready...)...)); err != nil {
		return err
	}
	var theirs [greetingLen]byte
	if _, err := io.ReadFull(s.r, theirs[:]); err != nil {
		return err
	}
	if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 || string(theirs[12:17]) != "NULL\x00" {
		return errors.New("it does not speak ZMTP 3 without security")
	}
	flags, size, err := s.header()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 || size > maxCommand {
		return errors.New("its first frame is no command")
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(s.r, body); err != nil {
		return err
	}
	if len(body) < 6 || string(body[:6]) != "\x05READY" {
		return errors.New("it is not ready")
	}
	return nil
}

// header reads the head of a frame.
func (s *socket) header() (flags byte, size uint64, err error) {
	var b [9]byte
	if _, err = io.ReadFull(s.r, b[:2]); err != nil {
		return 0, 0, err
	}
	flags = b[0]
	if flags&flagLong == 0 {
		return flags, uint64(b[1]), nil
	}
	if _, err = io.ReadFull(s.r, b[2:9]); err != nil {
		return 0, 0, err
	}
	return flags, binary.BigEndian.Uint64(b[1:9]), nil
}

// Recv reads one message. errTooLarge leaves the socket good for the next one.
func (s *socket) Recv() ([][]byte, error) {
	var parts [][]byte
	total, tooLarge := uint64(0), false
	for {
		flags, size, err := s.header()
		if err != nil {
			return nil, err
		}
		if size > 1<<62 {
			return nil, errors.New("a frame of an impossible size")
		}
		if flags&flagCommand != 0 {
			if size > maxCommand {
				return nil, errors.New("a command of the transport is too long")
			}
			if err := s.skip(size); err != nil {
				return nil, err
			}
			continue
		}
		total += size
		if tooLarge = tooLarge || total > maxMessage || len(parts) == maxParts; tooLarge {
			parts, total = nil, maxMessage
			err = s.skip(size)
		} else {
			var b []byte
			b, err = s.body(int(size))
			parts = append(parts, b)
		}
		if err != nil {
			return nil, err
		}
		if flags&flagMore == 0 {
			break
		}
	}
	if tooLarge {
		return nil, errTooLarge
	}
	return parts, nil
}

// body reads a frame's bytes. The buffer grows with what comes, not with what the
// kernel says will come.
func (s *socket) body(size int) ([]byte, error) {
	const step = 1 << 20
	b := make([]byte, 0, min(size, step))
	for len(b) < size {
		n := min(size-len(b), step)
		at := len(b)
		b = append(b, make([]byte, n)...)
		if _, err := io.ReadFull(s.r, b[at:]); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (s *socket) skip(size uint64) error {
	_, err := io.CopyN(io.Discard, s.r, int64(size))
	return err
}

// Send writes one message. Many may call it.
func (s *socket) Send(parts [][]byte) error {
	var b []byte
	for i, p := range parts {
		flags := byte(0)
		if i < len(parts)-1 {
			flags |= flagMore
		}
		if len(p) > 255 {
			b = binary.BigEndian.AppendUint64(append(b, flags|flagLong), uint64(len(p)))
		} else {
			b = append(b, flags, byte(len(p)))
		}
		b = append(b, p...)
	}
	s.send.Lock()
	defer s.send.Unlock()
	if err := s.conn.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}

// Close ends a Recv that waits.
func (s *socket) Close() error { return s.conn.Close() }
