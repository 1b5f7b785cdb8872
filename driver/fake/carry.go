package fake

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/driver"
	"github.com/berth-dev/berth/sandbox"
)

var _ driver.Carrier = (*machine)(nil)

// Carry implements driver.Carrier: the guest's descriptors are this process's own.
func (m *machine) Carry() (driver.Carriage, bool) { return &carriage{m}, true }

type carriage struct{ m *machine }

// Close implements driver.Carriage.
func (c *carriage) Close() error { return nil }

// Fill implements driver.Carriage.
func (c *carriage) Fill(ctx context.Context, file int, from io.Reader) (int64, error) {
	f, err := c.open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return c.copy(ctx, io.NewOffsetWriter(f, 0), from)
}

// Drain implements driver.Carriage.
func (c *carriage) Drain(ctx context.Context, file int, offset, length int64, to io.Writer) (int64, error) {
	f, err := c.open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return c.copy(ctx, to, io.NewSectionReader(f, offset, length))
}

// open takes hold of a descriptor of the guest's.
func (c *carriage) open(file int) (*os.File, error) {
	select {
	case <-c.m.done:
		return nil, &sandbox.Error{Op: "carry file", ID: c.m.id, Err: errEnded()}
	default:
	}
	fd, err := unix.FcntlInt(uintptr(file), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, driver.ErrNotCarried
	}
	f := os.NewFile(uintptr(fd), "carried")
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil, driver.ErrNotCarried
	}
	return f, nil
}

// copy moves bytes until from ends or the machine does.
func (c *carriage) copy(ctx context.Context, to io.Writer, from io.Reader) (total int64, err error) {
	b := make([]byte, 64<<10)
	for {
		select {
		case <-c.m.done:
			return total, &sandbox.Error{Op: "carry file", ID: c.m.id, Err: errEnded()}
		case <-ctx.Done():
			return total, &sandbox.Error{Op: "carry file", ID: c.m.id, Err: ctx.Err()}
		default:
		}
		n, err := from.Read(b)
		if _, werr := to.Write(b[:n]); werr != nil {
			return total, werr
		}
		total += int64(n)
		if err == io.EOF {
			return total, nil
		}
		if err != nil {
			return total, err
		}
	}
}
