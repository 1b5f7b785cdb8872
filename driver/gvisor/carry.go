package gvisor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/urpc"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

const (
	carrySlot  = 512 << 10 // bytes that are moved at once
	carrySlots = 4         // of one file: some are filled while others are emptied

	carriesEach = 4  // files of one machine that move at once
	carriesAll  = 64 // of all machines; each takes carrySlot * carrySlots of memory
)

// carryCall is the engine's call that moves a file.
var carryCall = "containerManager.Carry"

var _ driver.Carrier = (*machine)(nil)

// Carry implements driver.Carrier.
func (m *machine) Carry() (driver.Carriage, bool) {
	if m.bare.Load() {
		return nil, false
	}
	select {
	case m.carries <- struct{}{}:
	default:
		return nil, false
	}
	select {
	case m.driver.carries <- struct{}{}:
		return &carriage{m: m}, true
	default:
		<-m.carries
		return nil, false
	}
}

// carriage moves one file through memory that it shares with the engine, which
// reads and writes the file by itself. The engine may be hostile: what it says is
// checked, and what it has mapped holds nothing but this file's bytes.
type carriage struct {
	m      *machine
	socket net.Conn
	shared []byte
	closed bool
}

// carryArgs are the engine's boot.CarryArgs.
type carryArgs struct {
	urpc.FilePayload

	File   int32
	Out    bool
	Offset int64
	Length int64
	Slot   int
}

// Close implements driver.Carriage.
func (c *carriage) Close() error {
	if !c.closed {
		c.closed = true
		<-c.m.driver.carries
		<-c.m.carries
	}
	return nil
}

// Fill implements driver.Carriage.
func (c *carriage) Fill(ctx context.Context, file int, from io.Reader) (n int64, err error) {
	err = c.run(ctx, &carryArgs{File: int32(file)}, func() error {
		n, err = c.fill(from)
		return err
	})
	return n, err
}

// fill reads into slots and tells of them. Of the slots that are not free the
// engine gives word in the order in which it was told of them.
func (c *carriage) fill(from io.Reader) (total int64, err error) {
	for next, busy := 0, 0; ; next = (next + 1) % carrySlots {
		if busy == carrySlots {
			if _, err := c.noted(); err != nil {
				return total, err
			}
			busy--
		}
		n, err := io.ReadFull(from, c.part(next, carrySlot))
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return total, &foreign{err}
		}
		if n > 0 {
			if err := c.note(next, n); err != nil {
				return total, c.last(err)
			}
			busy++
			total += int64(n)
		}
		if !last {
			continue
		}
		for ; busy > 0; busy-- {
			if _, err := c.noted(); err != nil {
				return total, err
			}
		}
		return total, nil
	}
}

// Drain implements driver.Carriage.
func (c *carriage) Drain(ctx context.Context, file int, offset, length int64, to io.Writer) (n int64, err error) {
	if length <= 0 || offset < 0 {
		return 0, sandbox.Errorf("carry file", sandbox.Invalid, "bytes %d+%d of a file", offset, length)
	}
	err = c.run(ctx, &carryArgs{File: int32(file), Out: true, Offset: offset, Length: length}, func() error {
		n, err = c.drain(length, to)
		return err
	})
	return n, err
}

func (c *carriage) drain(length int64, to io.Writer) (total int64, err error) {
	for next := 0; total < length; next = (next + 1) % carrySlots {
		n, err := c.noted()
		if err != nil || n == 0 {
			return total, err
		}
		b := c.part(next, int(min(int64(n), length-total)))
		if _, err := to.Write(b); err != nil {
			return total, &foreign{err}
		}
		total += int64(len(b))
		_ = c.note(next, n) // an engine that has told of all may have gone; if too early, the next word says so
	}
	return total, nil
}

func (c *carriage) part(slot, n int) []byte { return c.shared[slot*carrySlot:][:n] }

// foreign marks an error of the caller's reader or writer.
type foreign struct{ error }

// run makes one call to the engine, and move while that is under way.
func (c *carriage) run(ctx context.Context, args *carryArgs, move func() error) error {
	memory, err := c.share()
	if err != nil {
		return fault("carry file", c.m.id, err)
	}
	defer memory.Close()
	defer unix.Munmap(c.shared)
	theirs, err := c.connect()
	if err != nil {
		return fault("carry file", c.m.id, err)
	}
	defer c.socket.Close()
	client, err := c.m.place.control(c.m.id)
	if err != nil {
		theirs.Close()
		return &sandbox.Error{Op: "carry file", Kind: sandbox.Unavailable, ID: c.m.id, Err: err}
	}
	defer client.Close()
	args.Slot, args.Files = carrySlot, []*os.File{theirs, memory}
	ended := make(chan error, 1)
	go func() { // ends with the call: when our end is closed, the engine is gone or nobody waits
		err := client.Call(carryCall, args, nil)
		theirs.Close() // what was said before is still read
		ended <- err
	}()
	stop := context.AfterFunc(ctx, func() { c.socket.Close(); client.Socket.Shutdown() })
	defer stop()
	err = c.first()
	if err == nil {
		err = move()
	}
	c.socket.Close()
	return c.explain(ctx, err, <-ended)
}

// explain says which of several errors is the cause.
func (c *carriage) explain(ctx context.Context, moved, called error) error {
	var theirs *foreign
	var errno unix.Errno
	switch {
	case moved == nil: // all is where it should be
		return nil
	case errors.As(moved, &theirs):
		return theirs.error
	case ctx.Err() != nil:
		return &sandbox.Error{Op: "carry file", ID: c.m.id, Err: ctx.Err()}
	case errors.Is(moved, driver.ErrNotCarried), errors.As(moved, &errno):
		return moved
	case called != nil && strings.Contains(called.Error(), urpc.ErrUnknownMethod.Error()):
		c.m.bare.Store(true) // it runs in the engine of an earlier build
		return driver.ErrNotCarried
	}
	return &sandbox.Error{Op: "carry file", Kind: sandbox.Unavailable, ID: c.m.id, Err: errors.Join(moved, called)}
}

// share makes the memory that both sides map. Its size is sealed: nobody can take
// away what the other side reads.
func (c *carriage) share() (*os.File, error) {
	fd, err := unix.MemfdCreate("berth-carry", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "carry")
	if err := f.Truncate(carrySlots * carrySlot); err != nil {
		f.Close()
		return nil, err
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		f.Close()
		return nil, os.NewSyscallError("seal memory", err)
	}
	// Populated, so that it counts as the server's and not as the sandbox's.
	c.shared, err = unix.Mmap(fd, 0, carrySlots*carrySlot, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		f.Close()
		return nil, os.NewSyscallError("map memory", err)
	}
	return f, nil
}

func (c *carriage) connect() (theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "carry"), os.NewFile(uintptr(pair[1]), "carry")
	c.socket, err = net.FileConn(ours)
	ours.Close()
	if err != nil {
		theirs.Close()
		return nil, err
	}
	return theirs, nil
}

// first waits for the engine's word that it can carry.
func (c *carriage) first() error {
	_, err := c.noted()
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return fmt.Errorf("%w: %w", driver.ErrNotCarried, err)
	}
	return err
}

// note tells the engine of a slot.
func (c *carriage) note(slot, n int) error {
	var b [8]byte
	binary.LittleEndian.PutUint32(b[:], uint32(slot))
	binary.LittleEndian.PutUint32(b[4:], uint32(n))
	if _, err := c.socket.Write(b[:]); err != nil {
		return fmt.Errorf("the engine broke off: %v", err)
	}
	return nil
}

// last is the engine's word for why it broke off, or err.
func (c *carriage) last(err error) error {
	for range carrySlots {
		_, told := c.noted()
		if errno := unix.Errno(0); errors.As(told, &errno) {
			return told
		}
	}
	return err
}

// noted waits for the engine's word of the next slot: how many bytes it holds, or
// held, or the error that the engine met.
func (c *carriage) noted() (n int, err error) {
	var b [8]byte
	if _, err := io.ReadFull(c.socket, b[:]); err != nil {
		return 0, fmt.Errorf("the engine broke off: %v", err)
	}
	count := int32(binary.LittleEndian.Uint32(b[4:]))
	switch {
	case count > carrySlot || count < -4095:
		return 0, fmt.Errorf("the engine told of %d bytes in a slot", count)
	case count < 0:
		return 0, unix.Errno(-count)
	}
	return int(count), nil
}
